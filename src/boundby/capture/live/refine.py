"""What only the process itself knows of its steps: lines, listed tensors, storages, memory.

A trace file names the function an operator was called in, not the line; it leaves the tensors of a
list out, and never says which inputs are the same memory, nor which call made it. The profiler's
own event tree has all four, under the identifiers that the trace uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from boundby.capture.kineto.names import Origin, frame_of
from boundby.model import Allocations, OpCall, Tensor, Timeline

_DTYPES = {
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
    "float8_e4m3fnuz": "float8",
    "float8_e5m2fnuz": "float8",
}
_OPERATOR = "_ExtraFields_TorchOp"
_PYTHON = "_ExtraFields_PyCall"
_BUILTIN = "_ExtraFields_PyCCall"
_ALLOCATION = "_ExtraFields_Allocation"


class Detail:
    """One operator call as the process knows it."""

    __slots__ = ("args", "made", "source")

    def __init__(self, args: tuple[Any, ...], source: str | None) -> None:
        self.args = args
        self.source = source
        self.made: list[tuple[int, int]] = []  # address and size of memory it took


class _Frame:
    """A Python function that is running: where it has got to, and the user's line around it."""

    __slots__ = ("file", "function", "line", "outer")

    def __init__(self, file: str, function: str, line: int, outer: str | None) -> None:
        self.file = file
        self.function = function
        self.line = line
        self.outer = outer

    def source(self) -> str | None:
        """The user's line in force: this function's where it is the user's, else its caller's."""
        frame = frame_of(f"{self.file}({self.line}): {self.function}")
        return frame.source if frame.origin is Origin.USER else self.outer


def details(results: Any) -> dict[int, Detail]:
    """Operator calls of the profiled steps, by the identifier that the trace carries too."""
    found: dict[int, Detail] = {}
    # Children come in order of time, so that a function's line only ever moves on.
    waiting: list[tuple[Any, _Frame | None, Detail | None]] = [
        (root, None, None) for root in reversed(results.experimental_event_tree())
    ]
    while waiting:
        event, frame, inside = waiting.pop()
        fields = event.extra_fields
        kind = type(fields).__name__
        if kind == _OPERATOR:
            args = tuple(_argument(value) for value in fields.inputs)
            inside = Detail(args, frame.source() if frame else None)
            found[event.correlation_id] = inside
        elif kind == _ALLOCATION:
            if inside is not None and fields.alloc_size > 0:
                inside.made.append((fields.ptr, fields.alloc_size))
        elif kind in (_PYTHON, _BUILTIN):
            file, _, line = _place(fields.caller)
            if frame is not None and frame.file == file:
                frame.line = line
            if kind == _PYTHON:
                outer = frame.source() if frame else None
                frame = _Frame(*_place(fields.callsite), outer)
        waiting += [(child, frame, inside) for child in reversed(event.children)]
    return found


def _place(state: Any) -> tuple[str, str, int]:
    """File, function and line; nothing where the function's code was freed since (an import)."""
    try:
        return state.file_name, state.function_name, state.line_number
    except UnicodeDecodeError:
        return "", "", 0


def refine(
    timeline: Timeline, known: dict[int, Detail], kernel_lines: Mapping[str, str]
) -> Timeline:
    """The same timeline with exact lines, calls that hold storages and listed tensors, and memory.

    `kernel_lines` says where compiled kernels came from; without it, it is where the compiled code
    was called. Host rows are in order of time, thread by thread, and so is the memory they took.
    """
    host = timeline.host
    calls = list(timeline.calls)
    sources = list(timeline.sources)
    index = {name: position for position, name in enumerate(sources)}
    call_of, source_of = host.call.copy(), host.source.copy()
    made: dict[OpCall, int] = {}
    taken: list[tuple[int, int, int]] = []
    for row in np.flatnonzero(host.external >= 0):
        detail = known.get(int(host.external[row]))
        if detail is None:
            continue
        taken += [(int(row), storage, size) for storage, size in detail.made]
        old = int(call_of[row])
        if old >= 0 and detail.args:
            call = OpCall(name=calls[old].name, args=_merge(calls[old].args, detail.args))
            if call not in made:
                made[call] = len(calls)
                calls.append(call)
            call_of[row] = made[call]
        if detail.source is not None:
            source_of[row] = index.setdefault(detail.source, len(index))
    made_of = np.array([kernel_lines.get(name, "") for name in timeline.names] or [""])
    for row in np.flatnonzero(made_of[host.name] != ""):
        source_of[row] = index.setdefault(str(made_of[host.name[row]]), len(index))
    sources = list(index)
    backward = (host.forward >= 0) & (made_of[host.name] == "")
    source_of[backward] = source_of[host.forward[backward]]
    refined = msgspec.structs.replace(host, call=call_of, source=source_of)
    return msgspec.structs.replace(
        timeline, host=refined, calls=calls, sources=sources, allocations=_columns(taken)
    )


def _columns(taken: list[tuple[int, int, int]]) -> Allocations:
    rows, storages, sizes = zip(*taken, strict=True) if taken else ((), (), ())
    return Allocations(
        row=np.array(rows, np.int32),
        storage=np.array(storages, np.int64),
        bytes=np.array(sizes, np.int64),
    )


def _argument(value: Any) -> Any:
    if hasattr(value, "sizes"):
        dtype = str(value.dtype).removeprefix("torch.")
        return Tensor(
            shape=tuple(value.sizes),
            dtype=_DTYPES.get(dtype, dtype),
            strides=tuple(value.strides),
            storage=value.storage_data_ptr,
        )
    if isinstance(value, list):
        return tuple(_argument(item) for item in value)
    return value if isinstance(value, (bool, int, float, str)) else None


def _merge(recorded: tuple[Any, ...], known: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors as the process knows them, plain values as the trace has them."""
    if len(recorded) != len(known):
        return recorded or known
    return tuple(
        new if isinstance(new, Tensor) or _holds_tensors(new) else old
        for old, new in zip(recorded, known, strict=True)
    )


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(item, Tensor) for item in value)
