"""The operators of a step that a trace shows: run eagerly, or while graphs were captured."""

from __future__ import annotations

import numpy as np

from boundby.capture.kineto.events import BEGIN_CAPTURE, END_CAPTURE
from boundby.capture.torch.graph_replays.recording import Operator, Recording
from boundby.model import HostKind, Ints, OpCall, Timeline


def recording_of(timeline: Timeline) -> Recording:
    """The operators that launched work, in the order in which they began."""
    host = timeline.host
    parent = host.parent.tolist()
    kernels = _kernels(timeline)
    launching: set[int] = set()
    for row in [*np.flatnonzero(host.kind == HostKind.LAUNCH).tolist(), *kernels]:
        while row >= 0 and row not in launching:
            launching.add(row)
            row = parent[row]
    rows = np.flatnonzero(host.kind == HostKind.OP)
    place: dict[int, int] = {}
    operators: list[Operator] = []
    for row in rows[np.argsort(host.start_ns[rows], kind="stable")].tolist():
        if row not in launching:
            continue
        around = parent[row]
        while around >= 0 and around not in place:
            around = parent[around]
        place[row] = len(operators)
        operators.append(_operator(timeline, row, place.get(around, -1), kernels.get(row)))
    return Recording(tuple(operators), _captures(timeline, place))


def _captures(timeline: Timeline, place: dict[int, int]) -> tuple[tuple[int, ...], ...]:
    """For each graph captured in the step the operator of each launch."""
    host, parent = timeline.host, timeline.host.parent.tolist()
    begins, ends = (_starts(timeline, name) for name in (BEGIN_CAPTURE, END_CAPTURE))
    if len(begins) != len(ends) or (begins > ends).any() or (begins[1:] < ends[:-1]).any():
        return ()
    launches = np.flatnonzero(host.kind == HostKind.LAUNCH)
    inside = np.searchsorted(begins, host.start_ns[launches]) - 1
    found: list[list[int]] = [[] for _ in begins]
    for row, capture in zip(launches.tolist(), inside.tolist(), strict=True):
        if capture < 0 or host.start_ns[row] >= ends[capture]:
            continue
        if parent[row] >= 0 and host.kind[parent[row]] == HostKind.LAUNCH:
            continue  # the driver's call inside the runtime's
        around = parent[row]
        while around >= 0 and around not in place:
            around = parent[around]
        found[capture].append(place.get(around, -1))
    return tuple(map(tuple, found))


def _starts(timeline: Timeline, name: str) -> Ints:
    named = np.array([name in one for one in timeline.names] or [False])
    return np.sort(timeline.host.start_ns[named[timeline.host.name]])


def _operator(
    timeline: Timeline, row: int, parent: int, kernels: set[tuple[str, int]] | None
) -> Operator:
    host = timeline.host
    name, call = timeline.names[host.name[row]], int(host.call[row])
    source, module = int(host.source[row]), int(host.module[row])
    return Operator(
        name=name,
        call=timeline.calls[call] if call >= 0 else OpCall(name=name),
        parent=parent,
        source=timeline.sources[source] if source >= 0 else None,
        module=timeline.modules[module] if module >= 0 else None,
        phase=int(host.phase[row]),
        kernels=frozenset(kernels or ()),
    )


def _kernels(timeline: Timeline) -> dict[int, set[tuple[str, int]]]:
    """For each host row the kernels launched inside it, by name and launch shape."""
    device, parent = timeline.device, timeline.host.parent.tolist()
    grids = [0] * len(device) if device.grid is None else device.grid.tolist()
    found: dict[int, set[tuple[str, int]]] = {}
    for row, name, grid in zip(device.op.tolist(), device.name.tolist(), grids, strict=True):
        around = row
        while around >= 0:
            found.setdefault(around, set()).add((timeline.names[name], grid))
            around = parent[around]
    return found
