"""The user's lines behind a compiled kernel, as Inductor itself records them.

If enabled, Inductor records the lines behind every kernel it makes; each compiled graph carries
those of its own kernels, also when it comes from a cache.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import linecache
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_USUAL = 1  # Inductor's level: kernels with the operators they come from
_GRAPH = "CompiledFxGraph"
_NOTES = "inductor_provenance_stack_traces_str"
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)(?:\n[ \t]+([^\n]*))?')


GONE = ""


def enable_provenance() -> None:
    """Enable the records for what is compiled from now on; a level that the user set is kept."""
    from torch._inductor import config

    with contextlib.suppress(AttributeError):
        config.trace.provenance_tracking_level = config.trace.provenance_tracking_level or _USUAL


def living_graphs() -> Iterator[Any]:
    """Every graph that is compiled now."""
    if "torch._inductor.output_code" in sys.modules:
        yield from (one for one in gc.get_objects() if type(one).__name__ == _GRAPH)


def kernel_lines() -> dict[str, str]:
    """Kernel names, each with the user's line that most of it came from."""
    lines: dict[str, Counter[str]] = {}
    for graph in living_graphs():
        for handle, line in lines_behind(graph).items():
            if line:
                lines.setdefault(handle.partition(":")[0], Counter())[line] += 1
    return {name: count.most_common(1)[0][0] for name, count in lines.items()}


def lines_behind(graph: Any) -> dict[str, str | None]:
    """For each call in a compiled graph, by its handle, the user's line that most of it came from.

    None if it came from no user's line, `GONE` if the script has no such line any more.
    """
    found: dict[str, str | None] = {}
    with contextlib.suppress(TypeError, ValueError):
        for handle, traces in json.loads(getattr(graph, _NOTES, None) or "{}").items():
            seen = [_user_line(trace) for trace in traces]
            lines = Counter(filter(None, seen))
            found[handle] = lines.most_common(1)[0][0] if lines else GONE if GONE in seen else None
    return found


def _user_line(trace: str) -> str | None:
    """The innermost line of a traceback that is the user's own."""
    # Loads numpy: not before the script has ended.
    from boundby.capture.kineto.names import Origin, frame_of

    for file, line, function, text in reversed(_FRAME.findall(trace)):
        if frame_of(f"{_as_profiled(file)}({line}): {function}").origin is Origin.USER:
            # Without its text there is nothing to look for.
            found = _as_it_is_now(file, int(line), text.strip()) if text else (file, line)
            return frame_of(f"{_as_profiled(found[0])}({found[1]}): ").source if found else GONE
    return None


def _as_it_is_now(file: str, line: int, text: str) -> tuple[str, int] | None:
    """The place of a line in the running script, None if it is gone.

    Cached code may have been compiled for a script that was edited since, or for a copy of it in
    another folder or with another name.
    """
    loaded = _loaded_files(len(sys.modules))
    is_cell = not Path(file).exists() and linecache.getlines(file)  # of a notebook
    if file in loaded or is_cell:
        files = [file]
    else:
        alike = [one for one in loaded if Path(one).name == Path(file).name]
        files = alike or sorted(filter(_is_users, loaded))
    found = [
        (one, place)
        for one in files
        for place, now in enumerate(linecache.getlines(one), 1)
        if now.strip() == text
    ]
    return min(found, key=lambda place: abs(place[1] - line), default=None)


def _is_users(file: str) -> bool:
    from boundby.capture.kineto.names import Origin, frame_of

    return frame_of(f"{_as_profiled(file)}(1): ").origin is Origin.USER


@functools.lru_cache(maxsize=1)
def _loaded_files(_: int) -> frozenset[str]:
    """The files of all modules; cached by the number of modules."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return frozenset(str(Path(file).absolute()) for file in files if isinstance(file, str))


def _as_profiled(file: str) -> str:
    """The path relative to the folder that it was imported from, as in profiles."""
    inside = (folder + os.sep for folder in _folders(tuple(sys.path)))
    return next((file.removeprefix(one) for one in inside if file.startswith(one)), file)


@functools.lru_cache(maxsize=1)
def _folders(paths: tuple[str, ...]) -> list[str]:
    """The longest first."""
    return sorted({str(Path(one).absolute()) for one in paths}, key=len, reverse=True)
