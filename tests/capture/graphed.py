"""Real steps made into one replayed graph: their kernels lose their operators."""

from __future__ import annotations

import msgspec
import numpy as np

from boundby.capture.torch.graph_replays import Operator, Recording
from boundby.model import DeviceKind, HostEvents, HostKind, Timeline

LAUNCH = "cudaGraphLaunch"


def recording_of(timeline: Timeline) -> tuple[Recording, dict[int, int]]:
    """The operators of a step in the order they began, as a capture notes them; rows to places."""
    host = timeline.host
    rows = np.flatnonzero((host.kind == HostKind.OP) & (host.call >= 0))
    rows = rows[np.argsort(host.start_ns[rows], kind="stable")]
    place: dict[int, int] = {}
    found: list[Operator] = []
    for row in rows.tolist():
        around = int(host.parent[row])
        while around >= 0 and around not in place:
            around = int(host.parent[around])
        if _is_on_the_host(timeline, row) or (around in place and place[around] == -1):
            place[row] = -1
            continue
        place[row] = len(found)
        name, call = timeline.names[host.name[row]], timeline.calls[host.call[row]]
        found.append(Operator(name, call, place[around] if around >= 0 else -1))
    return Recording(tuple(found)), place


def as_graph(timeline: Timeline) -> Timeline:
    """The same kernels and copies, launched as one graph in the order that they were issued in."""
    device, host = timeline.device, timeline.host
    issued = np.where(device.launch >= 0, host.start_ns[device.launch], 0)
    order = np.argsort(issued, kind="stable")
    order = order[np.isin(device.kind[order], [DeviceKind.KERNEL, DeviceKind.MEMSET])]
    durations = device.duration_ns[order]
    count = len(order)
    return msgspec.structs.replace(
        timeline,
        host=_one_launch(timeline),
        names=[*timeline.names, LAUNCH],
        calls=[],
        device=msgspec.structs.replace(
            device,
            start_ns=timeline.start_ns + np.cumsum(durations) - durations,
            duration_ns=durations,
            kind=device.kind[order],
            name=device.name[order],
            stream=np.zeros(count, np.int64),
            launch=np.zeros(count, np.int32),
            op=np.full(count, -1, np.int32),
            graph=np.ones(count, np.bool_),
            bytes=device.bytes[order],
            call=None,
        ),
    )


def operators_behind(timeline: Timeline, place: dict[int, int]) -> list[int]:
    """For each row of `as_graph` the place of the operator that it really belongs to."""
    device, host = timeline.device, timeline.host
    issued = np.where(device.launch >= 0, host.start_ns[device.launch], 0)
    order = np.argsort(issued, kind="stable")
    order = order[np.isin(device.kind[order], [DeviceKind.KERNEL, DeviceKind.MEMSET])]
    found = []
    for row in device.op[order].tolist():
        around = row
        while around >= 0 and around not in place:
            around = int(host.parent[around])
        found.append(place.get(around, -1))
    return found


def _one_launch(timeline: Timeline) -> HostEvents:
    none, number = np.full(1, -1, np.int32), np.full(1, -1, np.int64)
    return HostEvents(
        start_ns=np.array([timeline.start_ns], np.int64),
        duration_ns=np.array([1000], np.int64),
        kind=np.array([HostKind.LAUNCH], np.int8),
        name=np.array([len(timeline.names)], np.int32),
        thread=np.array([1], np.int64),
        parent=none,
        call=none,
        source=none,
        module=none,
        phase=np.zeros(1, np.int8),
        sequence=number,
        forward=none,
        external=number,
    )


def _is_on_the_host(timeline: Timeline, row: int) -> bool:
    """Optimizers count their steps on the CPU; a trace does not say where a tensor lives."""
    host = timeline.host
    tensors = timeline.calls[host.call[row]].tensors
    listed = timeline.names[host.name[row]].startswith("aten::_foreach_add_")
    return listed and bool(tensors) and not any(tensor.shape for tensor in tensors)
