"""What only the running process knows of its profiled steps: exact lines, tensors in lists, storages.

A trace file names the function an operator was called in, not the line; it leaves the tensors of a
list out, and never says which inputs are the same memory. The profiler's own event tree has all
three, under the identifiers that the trace uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from boundby.capture.kineto.origins import is_library, short_path
from boundby.model import OpCall, Tensor, Timeline

_DTYPES = {"float8_e4m3fn": "float8", "float8_e5m2": "float8", "float8_e4m3fnuz": "float8"}


class Detail:
    """One operator call as the process knows it."""

    __slots__ = ("args", "source")

    def __init__(self, args: tuple[Any, ...], source: str | None) -> None:
        self.args = args
        self.source = source


def details(results: Any) -> dict[int, Detail]:
    """Operator calls of the profiled steps, by the identifier that the trace carries too."""
    found: dict[int, Detail] = {}
    for root in results.experimental_event_tree():
        for event, source in _operators(root):
            args = tuple(_argument(value) for value in event.extra_fields.inputs)
            found[event.correlation_id] = Detail(args, source)
    return found


def refine(timeline: Timeline, known: dict[int, Detail]) -> Timeline:
    """The same timeline with exact lines, and with calls that hold storages and listed tensors."""
    host = timeline.host
    calls = list(timeline.calls)
    sources = list(timeline.sources)
    index = {name: position for position, name in enumerate(sources)}
    call_of, source_of = host.call.copy(), host.source.copy()
    made: dict[OpCall, int] = {}
    for row in np.flatnonzero(host.external >= 0):
        detail = known.get(int(host.external[row]))
        if detail is None:
            continue
        old = int(call_of[row])
        if old >= 0 and detail.args:
            call = OpCall(name=calls[old].name, args=_merge(calls[old].args, detail.args))
            if call not in made:
                made[call] = len(calls)
                calls.append(call)
            call_of[row] = made[call]
        if detail.source is not None:
            if detail.source not in index:
                index[detail.source] = len(sources)
                sources.append(detail.source)
            source_of[row] = index[detail.source]
    _lines_of_backward(timeline, source_of)
    refined = msgspec.structs.replace(host, call=call_of, source=source_of)
    return msgspec.structs.replace(timeline, host=refined, calls=calls, sources=sources)
