"""Adds to the timeline of a trace what only the process itself knows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.capture.host.line_sampler import Sample
from boundby.capture.kineto.names import Origin, frame_of
from boundby.capture.torch.compiled_code import CompiledGraph
from boundby.capture.torch.compiled_rows import compiled_lines
from boundby.capture.torch.line_samples import locate
from boundby.capture.torch.profiler_cost import MeasuredCallCost
from boundby.capture.torch.profiler_tree import Detail, Details, Line
from boundby.model import (
    PYTHON_FRAMES,
    Allocations,
    HostEvents,
    HostKind,
    OpCall,
    ProfilerCallCost,
    Tensor,
    Timeline,
)

_FUNCTIONS = (*PYTHON_FRAMES, HostKind.DATA)
_RUNTIME = (HostKind.LAUNCH, HostKind.SYNC, HostKind.RUNTIME)


def enrich_timeline(
    timeline: Timeline,
    known: Details,
    kernel_lines: Mapping[str, str],
    samples: Sequence[Sample] = (),
    call_cost: MeasuredCallCost | None = None,
    compiled: Mapping[str, CompiledGraph] | None = None,
) -> Timeline:
    """The same timeline with exact lines, calls with storages and listed tensors, and memory.

    `kernel_lines` has the lines of compiled kernels, and `compiled` those of everything that
    compiled graphs call; without them, it is the line that called the compiled code. Host rows are
    in order of time, thread by thread, and so is the memory they allocated.
    """
    host = timeline.host
    calls = list(timeline.calls)
    call_of = host.call.copy()
    made: dict[OpCall, int] = {}
    taken: list[tuple[int, int, int]] = []
    found = _find(host, known)
    for row, detail in found.items():
        taken += [(row, storage, size) for storage, size in detail.made]
        old = int(call_of[row])
        if old >= 0 and detail.args:
            call = OpCall(name=calls[old].name, args=_merge(calls[old].args, detail.args))
            if call not in made:
                made[call] = len(calls)
                calls.append(call)
            call_of[row] = made[call]
    # The trace counts from its own origin; an operator has the same time in both.
    later = statistics.mode(
        [detail.start_ns - int(host.start_ns[row]) for row, detail in found.items()] or [0]
    )
    own = _own_functions(timeline)
    lines, callers = _lines(host, known, found, later, own) if found else ({}, {})
    index = {name: position for position, name in enumerate(timeline.sources)}
    generated = compiled_lines(timeline, compiled or {})
    source, inside = _sources(timeline, lines, kernel_lines, generated, index)
    called = np.where(own & (host.parent >= 0), source[host.parent], source)
    for row, line in callers.items():
        called[row] = index.setdefault(line.source, len(index))
    moments = locate(timeline, samples, later, index) if found else None
    refined = msgspec.structs.replace(
        host, call=call_of, source=source, inside=inside, called=called
    )
    return msgspec.structs.replace(
        timeline,
        host=refined,
        calls=calls,
        sources=list(index),
        allocations=_columns(taken),
        samples=moments,
        call_cost=None if call_cost is None else ProfilerCallCost(**call_cost._asdict()),
    )


def _own_functions(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """A mask of the rows that are functions of the user's."""
    host = timeline.host
    is_users = np.array(
        [frame_of(name).origin is Origin.USER for name in timeline.names] or [False]
    )
    own: npt.NDArray[np.bool_] = (host.kind == HostKind.PYTHON) & is_users[host.name]
    return own


def _find(host: HostEvents, known: Details) -> dict[int, Detail]:
    """The operators among the rows; runtime calls have the identifier of their operator."""
    rows = np.flatnonzero((host.external >= 0) & ~np.isin(host.kind, _RUNTIME)).tolist()
    found = {row: known.operators.get(int(host.external[row])) for row in rows}
    return {row: detail for row, detail in found.items() if detail is not None}


def _lines(
    host: HostEvents,
    known: Details,
    found: Mapping[int, Detail],
    later: int,
    own: npt.NDArray[np.bool_],
) -> tuple[dict[int, Line], dict[int, Line]]:
    """Lines of operators, of functions, and of runtime calls in them; and the lines from which the
    user's own functions were called."""
    lines = {row: detail.line for row, detail in found.items() if detail.line is not None}
    callers: dict[int, Line] = {}
    # A compiled graph's own kernel is a function in the profile, although it has a name now.
    is_function = np.isin(host.kind, _FUNCTIONS) | (
        (host.kind == HostKind.OP) & (host.external < 0)
    )
    for row in np.flatnonzero(is_function).tolist():
        start_ns = int(host.start_ns[row]) + later
        line = known.builtins.get(start_ns) or known.functions.get(start_ns)
        if line is not None and row not in found:
            (callers if own[row] else lines)[row] = line
    for row in np.flatnonzero(np.isin(host.kind, _RUNTIME)).tolist():
        operator = known.operators.get(int(host.external[row]))
        line = operator.line if operator else lines.get(int(host.parent[row]))
        if line is not None:
            lines[row] = line
    return lines, callers


def _sources(
    timeline: Timeline,
    lines: Mapping[int, Line],
    kernel_lines: Mapping[str, str],
    generated: Mapping[int, str],
    index: dict[str, int],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The line of each row, and the line inside a library; new ones are added to the index.

    A backward row gets its forward's line.
    """
    host = timeline.host
    source, inside = host.source.copy(), np.full(len(host), -1, np.int32)
    from_forward = host.forward >= 0
    for row, line in lines.items():
        source[row] = index.setdefault(line.source, len(index))
        if line.inside is not None:
            inside[row] = index.setdefault(line.inside, len(index))
        from_forward[row] &= not line.in_backward
    made_of = np.array([kernel_lines.get(name, "") for name in timeline.names] or [""])
    compiled = made_of[host.name] != ""
    for row in np.flatnonzero(compiled).tolist():
        source[row] = index.setdefault(str(made_of[host.name[row]]), len(index))
    from_forward &= ~compiled
    for row, known in generated.items():
        source[row], inside[row] = index.setdefault(known, len(index)), -1
        from_forward[row] = False
    for places in (source, inside):
        places[from_forward] = places[host.forward[from_forward]]
    return source, inside


def _columns(taken: list[tuple[int, int, int]]) -> Allocations:
    rows, storages, sizes = zip(*taken, strict=True) if taken else ((), (), ())
    return Allocations(
        row=np.array(rows, np.int32),
        storage=np.array(storages, np.int64),
        bytes=np.array(sizes, np.int64),
    )


def _merge(recorded: tuple[Any, ...], known: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors from the process, plain values from the trace."""
    if len(recorded) != len(known):
        return recorded or known
    return tuple(
        new if isinstance(new, Tensor) or _holds_tensors(new) else old
        for old, new in zip(recorded, known, strict=True)
    )


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(item, Tensor) for item in value)
