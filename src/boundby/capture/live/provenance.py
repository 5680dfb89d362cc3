"""Which of the user's lines a compiled kernel came from, as Inductor itself keeps it.

Inductor notes, when asked to, the lines behind every kernel it makes; each compiled graph carries
the notes of its own kernels, also when it comes out of a cache.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

_USUAL = 1
_GRAPH = "CompiledFxGraph"
_NOTES = "inductor_provenance_stack_traces_str"
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')


def ask_for_provenance() -> None:
    """Have the notes made for what is compiled from now on; a level that the user set stays."""
    from torch._inductor import config

    with contextlib.suppress(AttributeError):
        config.trace.provenance_tracking_level = config.trace.provenance_tracking_level or _USUAL


def kernel_lines() -> dict[str, str]:
    """Kernel names, each with the user's line that most of it came from."""
    if "torch._inductor.output_code" not in sys.modules:
        return {}
    lines: dict[str, Counter[str]] = {}
    for graph in gc.get_objects():
        if type(graph).__name__ == _GRAPH:
            for handle, line in lines_behind(graph).items():
                if line is not None:
                    lines.setdefault(handle.partition(":")[0], Counter())[line] += 1
    return {name: count.most_common(1)[0][0] for name, count in lines.items() if count}


def lines_behind(graph: Any) -> dict[str, str | None]:
    """By the handle of each call in a compiled graph, the user's line that most of it came from."""
    found: dict[str, str | None] = {}
    with contextlib.suppress(TypeError, ValueError):
        for handle, traces in json.loads(getattr(graph, _NOTES, None) or "{}").items():
            lines = Counter(filter(None, map(_user_line, traces)))
            found[handle] = lines.most_common(1)[0][0] if lines else None
    return found


def _user_line(trace: str) -> str | None:
    """The innermost line of a traceback that is the user's own."""
    # Brings numpy: not before the script has ended.
    from boundby.capture.kineto.names import Origin, frame_of

    for file, line, function in reversed(_FRAME.findall(trace)):
        frame = frame_of(f"{_as_profiled(file)}({line}): {function}")
        if frame.origin is Origin.USER:
            return frame.source
    return None


def _as_profiled(file: str) -> str:
    """Without the folder that it was imported from, as the profiler names it."""
    folders = sorted({str(Path(folder).absolute()) for folder in sys.path}, key=len, reverse=True)
    inside = (folder + os.sep for folder in folders)
    return next((file.removeprefix(one) for one in inside if file.startswith(one)), file)
