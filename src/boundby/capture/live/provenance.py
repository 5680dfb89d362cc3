"""Which of the user's lines a compiled kernel came from, as Inductor itself keeps it.

Inductor notes, when asked to, the lines behind every kernel it makes; each compiled graph carries
the notes of its own kernels, also when it comes out of a cache.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import sys
from collections import Counter

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
        if type(graph).__name__ != _GRAPH:
            continue
        with contextlib.suppress(TypeError, ValueError):
            for kernel, traces in json.loads(getattr(graph, _NOTES, None) or "{}").items():
                name = kernel.partition(":")[0]
                found = (_user_line(trace) for trace in traces)
                lines.setdefault(name, Counter()).update(line for line in found if line)
    return {name: count.most_common(1)[0][0] for name, count in lines.items() if count}


def _user_line(trace: str) -> str | None:
    """The innermost line of a traceback that is the user's own."""
    # Brings numpy: not before the script has ended.
    from boundby.capture.kineto.names import Origin, frame_of

    for file, line, function in reversed(_FRAME.findall(trace)):
        frame = frame_of(f"{file}({line}): {function}")
        if frame.origin is Origin.USER:
            return frame.source
    return None
