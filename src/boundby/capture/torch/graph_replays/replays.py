"""The timeline of a step that replays graphs, with the operators recorded at their capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.capture.torch.graph_replays.alignment import align
from boundby.capture.torch.graph_replays.kernel_classes import kernel_class, operator_class
from boundby.capture.torch.graph_replays.recording import Operator, Recording
from boundby.model import DeviceKind, OpCall, Phase, Timeline

Rows = npt.NDArray[np.int32]

_LAUNCH = "GraphLaunch"
# A recording that has an operator for less of a graph's kernels than this is not used. Assumed;
# libraries launch kernels of their own (plausible: 0.2 to 0.6).
_LEAST_FIT = 0.3
# Kernels of libraries may be of another class than their operator: a copy before a product.
_AGREE = 0.5
# The classes of other operators do not follow from their names.
_NAMED_ALIKE = ("aten::", "triton_")
_KINDS = (DeviceKind.KERNEL, DeviceKind.COPY_D2D, DeviceKind.MEMSET)


def attach_operators(
    timeline: Timeline,
    recordings: Mapping[int, Recording],
    replayed: Sequence[int] | None,
    kernel_lines: Mapping[str, str],
) -> Timeline:
    """The same timeline; kernels of graphs have the calls that their capture recorded.

    `replayed` names the recording of each graph that the step launched, in order; without it the
    timeline is unchanged, unless there is one recording only. `kernel_lines` gives the source lines
    of compiled kernels. A kernel that no recorded operator fits stays unknown. If the operator is
    known to have launched other kernels, or on another grid, its sizes were different: the kernel
    gets the operator's line and module, but not its call.
    """
    device = timeline.device
    if not device.graph.any():
        return timeline
    launches, launched_by = _launches(timeline)
    keys = _recording_of_each(len(launches), recordings, replayed)
    call, share = _own_calls(timeline), np.full(len(device), -1, np.int32)
    calls, numbers = list(timeline.calls), dict[OpCall, int]()
    seen: dict[tuple[int, tuple[str, ...], tuple[int, ...]], Rows] = {}
    placed: dict[int, Operator] = {}
    shares = 0
    work = np.isin(device.kind, _KINDS)
    rows_of = [np.flatnonzero((launched_by == launch) & work) for launch in launches]
    for number, (rows, key) in enumerate(zip(rows_of, keys, strict=True)):
        if key not in recordings:
            continue
        operators = recordings[key].operators
        names = tuple(timeline.names[name] for name in device.name[rows])
        grids = () if device.grid is None else tuple(device.grid[rows].tolist())
        same_as = key, names, grids
        if (places := _as_captured(recordings[key], rows_of, number, names)) is None:
            if same_as not in seen:
                seen[same_as] = _operators_of(timeline, rows, names, grids, recordings[key])
            places = seen[same_as].tolist()
        found = [
            (row, place)
            for row, place in zip(rows.tolist(), places, strict=True)
            if place >= 0 and device.kind[row] == DeviceKind.KERNEL
        ]
        same = {place for row, place in found if _is_same(timeline, row, operators[place])}
        for row, place in found:
            placed[row] = operator = operators[place]
            if place not in same:
                continue
            of_call = numbers.setdefault(operator.call, len(calls))
            if of_call == len(calls):
                calls.append(operator.call)
            call[row], share[row] = of_call, shares + place
        shares += len(operators)
    device = msgspec.structs.replace(device, call=call, share=share)
    timeline = msgspec.structs.replace(timeline, device=device, calls=calls)
    return _with_places(timeline, placed, kernel_lines)


def _as_captured(
    recording: Recording,
    rows_of: Sequence[npt.NDArray[np.int64]],
    number: int,
    names: Sequence[str],
) -> list[int] | None:
    """For each kernel of a replay the operator of the same launch in its capture, if the classes
    agree. Its capture is the one with as many launches; if there are several, all replays of the
    step must be those of the captures, in order."""
    counts = [len(rows) for rows in rows_of]
    captures = [one for one in recording.captures if len(one) == counts[number]]
    if counts == [len(one) for one in recording.captures]:
        captures = [recording.captures[number]]
    if len(captures) != 1:
        return None
    places = list(captures[0])
    agree = [
        kernel_class(name) == operator_class(operator)
        for name, place in zip(names, places, strict=True)
        if place >= 0 and (operator := recording.operators[place].name).startswith(_NAMED_ALIKE)
    ]
    return places if sum(agree) >= _AGREE * len(agree) else None


def _is_same(timeline: Timeline, row: int, operator: Operator) -> bool:
    """Whether a kernel does what the operator did, as far as its own kernels are known."""
    device = timeline.device
    if not operator.kernels:
        return True
    grid = 0 if device.grid is None else int(device.grid[row])
    return (timeline.names[device.name[row]], grid) in operator.kernels


def _recording_of_each(
    launches: int, recordings: Mapping[int, Recording], replayed: Sequence[int] | None
) -> list[int]:
    """The number of the recording behind each launch, -1 if unknown."""
    if replayed is not None and len(replayed) == launches:
        return list(replayed)
    if len(recordings) == 1 and set(replayed or ()) <= set(recordings):
        return list(recordings) * launches
    return [-1] * launches


def _launches(timeline: Timeline) -> tuple[list[int], Rows]:
    """The host rows that launched a graph, in order of time; and for each device row its own.

    A driver's call inside the runtime's is the same launch: a kernel may name either.
    """
    host, device = timeline.host, timeline.device
    is_launch = np.array([_LAUNCH in name for name in timeline.names] or [False])[host.name]
    inside = is_launch & np.append(is_launch, False)[host.parent]
    outer = np.where(inside, host.parent, np.arange(len(host))).astype(np.int32)
    rows = np.flatnonzero(is_launch & ~inside)
    rows = rows[np.argsort(host.start_ns[rows], kind="stable")]
    return rows.tolist(), np.append(outer, -1)[device.launch].astype(np.int32)


def _own_calls(timeline: Timeline) -> Rows:
    call = timeline.device.call
    return np.full(len(timeline.device), -1, np.int32) if call is None else call.copy()


def _operators_of(
    timeline: Timeline,
    rows: npt.NDArray[np.int64],
    names: tuple[str, ...],
    grids: tuple[int, ...],
    recording: Recording,
) -> Rows:
    """For each kernel the index of its operator; -1 for all if too few have one."""
    sized = frozenset(
        name
        for row, name in zip(rows.tolist(), names, strict=True)
        if timeline.device.kind[row] != DeviceKind.KERNEL
    )
    found = align(names, recording.operators, optional=sized, grids=grids)
    return found.operator if found.fit >= _LEAST_FIT else np.full(len(names), -1, np.int32)


def _with_places(
    timeline: Timeline, placed: Mapping[int, Operator], kernel_lines: Mapping[str, str]
) -> Timeline:
    """The timeline with lines, modules and phases of kernels in graphs, from their operators.

    A compiled kernel is known by name, because generated code calls it.
    """
    host, device = timeline.host, timeline.device
    sources = {name: position for position, name in enumerate(timeline.sources)}
    modules = {name: position for position, name in enumerate(timeline.modules)}
    source = np.full(len(device), -1, np.int32)
    module, phase = (np.append(of_host, -1)[device.op] for of_host in (host.module, host.phase))
    for row in np.flatnonzero(device.graph).tolist():
        operator = placed.get(row)
        line = kernel_lines.get(timeline.names[device.name[row]])
        line = line or (operator.source if operator is not None else None)
        if line is not None:
            source[row] = sources.setdefault(line, len(sources))
        if operator is not None and operator.module is not None:
            module[row] = modules.setdefault(operator.module, len(modules))
        if operator is not None and operator.phase != Phase.OTHER:
            phase[row] = operator.phase
    phase[phase < 0] = Phase.OTHER
    return msgspec.structs.replace(
        timeline,
        device=msgspec.structs.replace(
            device, source=source, module=module.astype(np.int32), phase=phase.astype(np.int8)
        ),
        sources=list(sources),
        modules=list(modules),
    )
