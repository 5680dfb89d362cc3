"""Launches: delays until their kernels start, the device's queue, repeated sequences."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict

import numpy as np

from boundby.model import DeviceKind, HostKind, Timeline
from boundby.model.assumptions.detection import BLOCKED_DEPTH, BLOCKED_LAUNCH, SHORT_KERNEL_NS
from boundby.model.rows import LaunchQueue, LaunchRow, SequenceRow

_MOST_ROWS = 200  # file size limit
_SHORTEST_SEQUENCE, _LONGEST_SEQUENCE = 2, 8  # kernels; longer repetitions are layers


def launch_rows(timeline: Timeline) -> list[LaunchRow]:
    """One row per operator: delays from launch to kernel, and how short its kernels are."""
    host, device = timeline.host, timeline.device
    gathered: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in np.flatnonzero(device.launch >= 0).tolist():
        launch, op = int(device.launch[row]), int(device.op[row])
        name = timeline.names[host.name[op] if op >= 0 else host.name[launch]]
        delay = int(device.start_ns[row] - host.start_ns[launch])
        gathered[name].append((delay, int(device.duration_ns[row])))
    rows = []
    for name, pairs in gathered.items():
        delays, kernels = [delay for delay, _ in pairs], [ns for _, ns in pairs]
        rows.append(
            LaunchRow(
                name=name,
                kernels=len(pairs),
                delay_ns=float(statistics.median(delays)),
                kernel_ns=float(statistics.median(kernels)),
                shortest_ns=float(min(kernels)),
                short=sum(ns < SHORT_KERNEL_NS.value for ns in kernels),
                ns=float(sum(kernels)),
            )
        )
    return sorted(rows, key=lambda row: (-row.short, -row.ns))[:_MOST_ROWS]


def launch_queue(timeline: Timeline) -> LaunchQueue | None:
    """How many launches waited on the device when each was made; None without launches."""
    host, device = timeline.host, timeline.device
    rows = np.flatnonzero((device.launch >= 0) & ~device.graph)
    if not len(rows):
        return None
    launched = host.start_ns[device.launch[rows]]
    order = np.argsort(launched, kind="stable")
    launched, started = launched[order], np.sort(device.start_ns[rows])
    depth = np.maximum(0, np.arange(len(rows)) - np.searchsorted(started, launched, side="right"))
    calls = device.launch[rows][order]
    took = host.duration_ns[calls]
    usual = float(np.median(took))
    waits = (
        (took > BLOCKED_LAUNCH.value * usual)
        & (depth >= BLOCKED_DEPTH.value)
        & (host.kind[calls] == HostKind.LAUNCH)
    )
    blocked = np.unique(calls[waits])
    return LaunchQueue(
        median=float(np.median(depth)),
        longest=int(depth.max()),
        blocked_ns=float((host.duration_ns[blocked] - usual).sum()) if len(blocked) else 0.0,
    )


def sequence_rows(timeline: Timeline) -> list[SequenceRow]:
    """Runs of short kernels that repeat on a stream, those with most time first.

    A run within a longer one that repeats as often is left out.
    """
    device = timeline.device
    occurrences: Counter[tuple[int, ...]] = Counter()
    time: dict[tuple[int, ...], float] = defaultdict(float)
    short = (device.kind == DeviceKind.KERNEL) & (device.duration_ns < SHORT_KERNEL_NS.value)
    for stream in np.unique(device.stream).tolist():
        rows = np.flatnonzero(device.stream == stream)
        for run in np.split(rows, np.flatnonzero(~short[rows])):
            indices = run[short[run]]
            names, ns = device.name[indices].tolist(), device.duration_ns[indices].tolist()
            _count(names, ns, occurrences, time)
    repeated = [(key, number) for key, number in occurrences.items() if number > 1]
    longer = {
        (part, number)
        for key, number in repeated
        for part in (key[1:], key[:-1])
        if len(part) >= _SHORTEST_SEQUENCE
    }
    rows_found = [
        SequenceRow(kernels=[timeline.names[name] for name in key], count=number, ns=time[key])
        for key, number in repeated
        if (key, number) not in longer
    ]
    return sorted(rows_found, key=lambda row: -row.ns)[:_MOST_ROWS]


def _count(
    names: list[int],
    ns: list[int],
    found: Counter[tuple[int, ...]],
    time: dict[tuple[int, ...], float],
) -> None:
    """Count each sequence where it does not overlap its previous occurrence."""
    for length in range(_SHORTEST_SEQUENCE, min(_LONGEST_SEQUENCE, len(names)) + 1):
        free_from: dict[tuple[int, ...], int] = {}
        for at in range(len(names) - length + 1):
            key = tuple(names[at : at + length])
            if free_from.get(key, 0) <= at:
                free_from[key] = at + length
                found[key] += 1
                time[key] += sum(ns[at : at + length])
