"""Dependencies between streams: traces do not contain the events that create them."""

from __future__ import annotations

import numpy as np

from boundby.model import DeviceKind, Ints, Timeline
from boundby.model.assumptions.device import STREAM_WAIT_NS
from boundby.step.simulator.waits import issued_ns


def dependencies(timeline: Timeline, order: Ints) -> Ints:
    """For each piece of work, in order of issue, the one on another stream that it waits for, or
    -1."""
    if len(np.unique(timeline.device.stream)) < 2:
        return np.full(len(order), -1, np.int64)
    depends = _observed(timeline, order)
    return np.where(depends >= 0, depends, _within_operators(timeline, order))


def _observed(timeline: Timeline, order: Ints) -> Ints:
    """Dependencies from the observed order: work that was issued long before it started, on a free
    stream, started when the last work elsewhere ended."""
    device = timeline.device
    stream = device.stream[order]
    depends = np.full(len(order), -1, np.int64)
    start, end = device.start_ns[order], (device.start_ns + device.duration_ns)[order]
    issued = issued_ns(timeline)[order]
    last_on: dict[int, int] = {}
    finished = np.argsort(end, kind="stable")
    for work in np.argsort(start, kind="stable"):
        own_stream = int(stream[work])
        before = last_on.get(own_stream)
        ready = max(int(issued[work]), int(end[before]) if before is not None else 0)
        if start[work] - ready > STREAM_WAIT_NS.value:
            at = int(np.searchsorted(end[finished], start[work], side="right")) - 1
            if at >= 0 and stream[finished[at]] != own_stream and finished[at] < work:
                depends[work] = finished[at]
        last_on[own_stream] = int(work)
    return depends


def _within_operators(timeline: Timeline, order: Ints) -> Ints:
    """An operator whose library uses several streams begins after the work issued before it, and
    the next work issued on its stream begins after it.

    The observed order does not show this if the host is slow: every stream is then idle at each
    launch.
    """
    device = timeline.device
    depends = np.full(len(order), -1, np.int64)
    stream = device.stream[order].astype(np.int64)
    # A collective is meant to overlap with what follows it.
    operator = np.where(device.kind == DeviceKind.COLLECTIVE, -1, device.op)[order]
    duration = device.duration_ns[order]
    grouped = np.argsort(operator, kind="stable")
    sorted_by = operator[grouped]
    spread = (np.diff(sorted_by) == 0) & (np.diff(stream[grouped]) != 0) & (sorted_by[1:] >= 0)
    for number in np.unique(sorted_by[1:][spread]):
        operator_work = grouped[slice(*np.searchsorted(sorted_by, [number, number + 1]))]
        before, last = int(operator_work[0]) - 1, int(operator_work[-1])
        if before < 0:
            continue
        streams, first, member = np.unique(
            stream[operator_work], return_index=True, return_inverse=True
        )
        issuing_stream = stream[before]
        depends[operator_work[first[streams != issuing_stream]]] = before
        # Of its streams the one that takes longest: how they wait for each other is unknown.
        longest = streams[np.argmax(np.bincount(member, weights=duration[operator_work]))]
        after = last + 1
        while after < len(order) and stream[after] != issuing_stream:
            after += 1
        if after < len(order) and longest != issuing_stream:
            depends[after] = operator_work[stream[operator_work] == longest][-1]
    return depends
