"""What the simulator executes: the host's actions in order, and the device work they issue."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from boundby.model import HostKind, Ints, Phase, Timeline
from boundby.model.assumptions.device import (
    KERNEL_GAP_NS,
    LAUNCH_LATENCY_NS,
    LONGEST_GAP_NS,
    LONGEST_LATENCY_NS,
)
from boundby.model.intervals import Coverage
from boundby.step.simulator.streams import dependencies
from boundby.step.simulator.waits import NOTHING, Waits, issued_ns, waits_of

Floats = npt.NDArray[np.float64]

_MOSTLY_GRAPHS = 0.5  # share of the kernels


class Wait(enum.IntEnum):
    """Whether and how the host waits after an action."""

    NOTHING = 0
    STREAM = 1  # until work that was issued has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSequence:
    """Host actions in order, and device work in order of issue.

    `host_ns[i]` is the host time before action i is done; `first[i]:first[i + 1]` is the device
    work that it issues; `wait[i]` tells whether the host then waits; `phase[i]` is the phase it
    belongs to. `after_ns` is the host time after the last action. `depends[k]` is earlier work
    on another stream that work k waits for, -1 for none. `until[i]` is the work that a waiting
    host waits for, -1 (or no array at all) for all of it. `rows[i]` is action i's row among the
    host's events. `data_ns[i]` is the part of `host_ns[i]` that waits for the next batch: it
    depends neither on the framework nor on the profiler.
    """

    host_ns: Floats
    wait: npt.NDArray[np.int8]
    phase: npt.NDArray[np.int8]
    first: Ints
    after_ns: float
    device_ns: Floats
    stream: Ints
    depends: Ints
    order: Ints  # position of each piece of work among the timeline's device events
    latency_ns: float
    gap_ns: float
    until: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    data_ns: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def empty(cls) -> LaunchSequence:
        """The sequence of a step that issues nothing to a device."""
        none, nothing = np.empty(0, np.int64), np.empty(0)
        return cls(
            host_ns=nothing,
            wait=np.empty(0, np.int8),
            phase=np.empty(0, np.int8),
            first=np.zeros(1, np.int64),
            after_ns=0.0,
            device_ns=nothing,
            stream=none,
            depends=none,
            order=none,
            latency_ns=0.0,
            gap_ns=0.0,
        )

    @property
    def data_wait_ns(self) -> Floats:
        """The waits for data in the host time before each action."""
        data = self.data_ns if len(self.data_ns) else np.zeros(len(self.host_ns))
        return np.minimum(data, self.host_ns)

    def scaled(self, factor: float | Floats) -> Floats:
        """Host times scaled, except the waits for data."""
        data_wait = self.data_wait_ns
        return data_wait + (self.host_ns - data_wait) * factor


def build_launch_sequence(timeline: Timeline, *, gap_ns: float | None = None) -> LaunchSequence:
    """The host's launches and syncs of a timeline, with the host time between them.

    Time spent waiting inside a sync is not host time: the replay computes it.
    """
    host, device = timeline.host, timeline.device
    order = np.lexsort((device.start_ns, issued_ns(timeline)))
    launches = device.launch[order].astype(np.int64)
    acting = np.unique(launches[launches >= 0])
    waits = waits_of(timeline)
    rows = np.union1d(acting, waits.rows)
    ends = (host.start_ns + host.duration_ns)[rows]
    by_end = np.argsort(ends, kind="stable")
    rows, ends = rows[by_end], ends[by_end]
    blocked = Coverage(waits.start_ns, waits.until_ns - waits.start_ns)
    start = min(timeline.start_ns, int(host.start_ns.min()) if len(host) else 0)
    # Several threads may act at once; the time until the next action is done counts.
    edges = np.concatenate([[start], ends]).astype(np.int64)
    host_ns = np.diff(edges) - blocked.between(edges[:-1], edges[1:])
    position = np.full(len(host) + 1, -1, np.int64)
    position[rows] = np.arange(len(rows))
    action = position[launches]
    # Work whose launch is not in the trace is issued with the work before it.
    action = np.maximum.accumulate(np.where(action < 0, 0, action)) if len(action) else action
    arranged = np.argsort(action, kind="stable")
    order, action = order[arranged], action[arranged]
    until = _until(waits, position[waits.rows], len(rows), order)
    first = np.searchsorted(action, np.arange(len(rows) + 1))
    inline = _inline(timeline)
    if inline.any():
        # A CPU runs small programs inside their call: the host does nothing else during it.
        runs = Coverage(device.start_ns[inline], device.duration_ns[inline])
        host_ns = host_ns - runs.between(edges[:-1], edges[1:])
        blocking = np.unique(position[device.launch[inline]])
        until[blocking] = first[blocking + 1] - 1
    after = max(0.0, float(host_end(timeline) - edges[-1]))
    return LaunchSequence(
        host_ns=np.clip(host_ns, 0.0, None),
        wait=np.where(until == NOTHING, Wait.NOTHING, Wait.STREAM).astype(np.int8),
        until=until,
        phase=_phases(timeline, rows),
        first=first,
        after_ns=after,
        device_ns=device.duration_ns[order].astype(np.float64),
        stream=np.unique(device.stream[order], return_inverse=True)[1].astype(np.int64),
        depends=dependencies(timeline, order),
        order=order,
        latency_ns=_latency(timeline),
        gap_ns=_gap(timeline, gap_ns),
        rows=rows,
        data_ns=_data_before(timeline, edges),
    )


def _gap(timeline: Timeline, known_ns: float | None) -> float:
    """The gap between kernels of a busy stream; between those of graphs, if most kernels are in
    graphs. A CPU's operators follow each other on its threads, and the profile has what is between
    them."""
    device = timeline.device
    if timeline.device_kind == "cpu":
        return 0.0
    inside = device.graph[1:] & (device.launch[1:] == device.launch[:-1])
    inside &= (device.launch[1:] >= 0) & (device.stream[1:] == device.stream[:-1])
    if inside.sum() > _MOSTLY_GRAPHS * len(device):
        gaps = device.start_ns[1:] - (device.start_ns + device.duration_ns)[:-1]
        return float(np.mean(np.clip(gaps[inside], -LONGEST_GAP_NS.value, LONGEST_GAP_NS.value)))
    return KERNEL_GAP_NS.value if known_ns is None else known_ns


def _until(waits: Waits, actions: Ints, count: int, order: Ints) -> Ints:
    """For each action the work, in order of issue, that it waits for."""
    placed = np.empty(len(order), np.int64)
    placed[order] = np.arange(len(order))
    until = np.full(count, NOTHING, np.int64)
    has_event = waits.event >= 0
    until[actions] = waits.event
    until[actions[has_event]] = placed[waits.event[has_event]]
    return until


def _latency(timeline: Timeline) -> float:
    """The time from a launch call's return to the start of work that did not have to wait."""
    has_launch = timeline.device.launch >= 0
    if not has_launch.any():
        return 0.0
    waits = (timeline.device.start_ns - issued_ns(timeline))[has_launch]
    latency_ns = max(0.0, float(np.percentile(waits, 10)))
    return latency_ns if latency_ns < LONGEST_LATENCY_NS.value else LAUNCH_LATENCY_NS.value


def _inline(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """Work of a CPU's programs that ran before the call that issued it returned."""
    device, host = timeline.device, timeline.host
    if timeline.device_kind != "cpu" or not len(host):
        return np.zeros(len(device), np.bool_)
    ends = (host.start_ns + host.duration_ns)[device.launch]
    is_inline: npt.NDArray[np.bool_] = (device.launch >= 0) & (device.start_ns < ends)
    return is_inline


def host_end(timeline: Timeline) -> int:
    """When the host's part of the step ends, which may be long before the device's."""
    host = timeline.host
    ends = (host.start_ns + host.duration_ns)[host.kind != HostKind.OBSERVER]
    return int(ends.max()) if len(ends) else timeline.end_ns


def _data_before(timeline: Timeline, edges: Ints) -> Floats:
    """The part of the time between consecutive actions that waits for the next batch.

    Loaders may nest and run on several threads: no moment is counted twice.
    """
    host = timeline.host
    waiting = host.kind == HostKind.DATA
    covered = Coverage(host.start_ns[waiting], host.duration_ns[waiting])
    return covered.between(edges[:-1], edges[1:])


def _phases(timeline: Timeline, rows: Ints) -> npt.NDArray[np.int8]:
    """Phases as in the clean measurement: zeroing gradients is outside of the optimizer."""
    host = timeline.host
    phase = host.phase[rows].copy()
    zeroing = np.array(["zero_grad" in name for name in timeline.names] or [False])
    row = rows.copy()
    while True:
        has_row = row >= 0
        if not has_row.any():
            return phase
        phase[has_row & zeroing[host.name[row]]] = Phase.FORWARD
        row[has_row] = host.parent[row[has_row]]
