"""A step replayed: what the host issues, in-order streams, syncs; the time that comes out.

The host walks through its launches and waits; the device starts each piece of work at the latest
of: its stream is free, it was issued, what it waits for has ended. Changing durations and
replaying gives a counterfactual: what the step would take if something cost nothing.

Nothing is fitted to the step's wall time. Host times come from the profile, brought down to what
the host was measured to take, phase by phase, without a profiler. What is left between the
replayed and the clean wall is the replay's error, and is shown.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.model import HostKind, Ints, Phase, Timeline

Floats = npt.NDArray[np.float64]

# Work the launch queue holds before a launch call blocks; about a thousand on CUDA.
QUEUE = 1024
# The device reaches a steady state in its second turn: the third minus the second is the period.
_TURNS = 3
_FASTEST, _SLOWEST = 0.02, 3.0
# Work that starts later than this after it was ready has waited for something.
_STREAM_WAIT_NS = 5_000
# A phase that takes nearly as long with a host that costs nothing was held up by the device.
_BLOCKED = 0.8
# Phases of the timeline, and what the clean measurement calls them.
_CLEAN_PHASES: dict[tuple[Phase, ...], tuple[str, ...]] = {
    (Phase.FORWARD, Phase.OTHER): ("forward", "other"),
    (Phase.BACKWARD,): ("backward",),
    (Phase.OPTIMIZER,): ("optimizer",),
}
# Between kernels of a backlogged stream, where the machine's own figure is not known.
USUAL_GAP_NS = 1_100.0
# From a launch call's return to the start of its work: 0.4 to 1.7 us were seen on an H200. A device
# that lags through the whole step shows its backlog instead.
_USUAL_LATENCY_NS = 1_000.0
_LONGEST_LATENCY_NS = 20_000.0


class Wait(enum.IntEnum):
    """What the host does after it has issued something."""

    NOTHING = 0
    STREAM = 1  # until all work issued so far has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A step as replay needs it: host actions in order, and device work in order of issue.

    `host_ns[i]` is host time before action i is done; `first[i]:first[i + 1]` is the device work
    it issues; `wait[i]` whether the host then waits; `phase[i]` the phase it belongs to. `after`
    is the host time behind the last action. `depends[k]` is earlier work on another stream that
    work k was seen to wait for, -1 for none. `rows[i]` is action i's row among the host's events.
    `data_ns[i]` is the part of `host_ns[i]` that waits for the next batch: no faster framework, and
    no missing profiler, makes that shorter.
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
    rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    data_ns: Floats = field(default_factory=lambda: np.empty(0))

    def scaled(self, factor: float | Floats) -> Floats:
        """Host times longer or shorter, but for the waiting for data."""
        data = self.data_ns if len(self.data_ns) else np.zeros(len(self.host_ns))
        held = np.minimum(data, self.host_ns)
        return held + (self.host_ns - held) * factor


def script_of(timeline: Timeline, *, gap_ns: float | None = None) -> Script:
    """The host's launches and syncs of a timeline, with the time it spent between them.

    Time spent waiting inside a sync is not host time: it comes out of the replay again.
    """
    host, device = timeline.host, timeline.device
    order = np.lexsort((device.start_ns, _issued(timeline)))
    launches = device.launch[order].astype(np.int64)
    acting = np.unique(launches[launches >= 0])
    syncs = np.flatnonzero(host.kind == HostKind.SYNC)
    rows = np.union1d(acting, syncs)
    ends = (host.start_ns + host.duration_ns)[rows]
    by_end = np.argsort(ends, kind="stable")
    rows, ends = rows[by_end], ends[by_end].astype(np.float64)
    is_sync = host.kind[rows] == HostKind.SYNC
    waited = _waited(timeline, rows, is_sync)
    start = float(min(timeline.start_ns, host.start_ns.min() if len(host) else 0))
    # Several threads may act at once; what counts is when the next action is done.
    between = np.diff(np.concatenate([[start], ends]))
    position = np.full(len(host) + 1, -1, np.int64)
    position[rows] = np.arange(len(rows))
    action = position[launches]
    # Work whose launch is not in the trace is issued with what came before it.
    action = np.maximum.accumulate(np.where(action < 0, 0, action)) if len(action) else action
    arranged = np.argsort(action, kind="stable")
    order, action = order[arranged], action[arranged]
    after = max(0.0, float(_host_end(timeline)) - (ends[-1] if len(ends) else start))
    return Script(
        host_ns=np.clip(between - waited, 0.0, None),
        wait=np.where(is_sync, Wait.STREAM, Wait.NOTHING).astype(np.int8),
        phase=_phases(timeline, rows),
        first=np.searchsorted(action, np.arange(len(rows) + 1)),
        after_ns=after,
        device_ns=device.duration_ns[order].astype(np.float64),
        stream=np.unique(device.stream[order], return_inverse=True)[1].astype(np.int64),
        depends=_dependencies(timeline, order),
        order=order,
        latency_ns=_latency(timeline),
        gap_ns=USUAL_GAP_NS if gap_ns is None else gap_ns,
        rows=rows,
        data_ns=_data_before(timeline, np.concatenate([[start], ends])),
    )


def replay(script: Script) -> float:
    """The step's period in ns, in the steady state of a loop."""
    if not len(script.host_ns):
        return script.after_ns
    ends = _turns(script, _TURNS)
    return float(ends[-1] - ends[-2])


def retimed(timeline: Timeline, script: Script) -> Timeline:
    """The same events at the times at which the replay has them happen, in a loop's steady state.

    The step lasts from the end of the previous one's device work to the end of its own. Host events
    move with the launches and syncs around them.
    """
    lists = _lists(script)
    free = [0.0] * (int(script.stream.max(initial=-1)) + 1)
    clock = _walk(lists, free, 0.0)
    seen = _Seen(began=clock, device_free=max(free, default=clock))
    _walk(lists, free, clock, seen)
    host, device = timeline.host, timeline.device
    moved = np.empty(len(device), np.int64)
    moved[script.order] = np.asarray(seen.started)
    starts, ends = _moved_host(timeline, script, seen)
    return msgspec.structs.replace(
        timeline,
        start_ns=int(seen.device_free),
        end_ns=int(max(free, default=clock)),
        host=msgspec.structs.replace(host, start_ns=starts, duration_ns=ends - starts),
        device=msgspec.structs.replace(
            device, start_ns=moved, duration_ns=_in_order(script.device_ns, script.order)
        ),
    )


def _in_order(values: Floats, order: Ints) -> Ints:
    placed = np.empty(len(values), np.int64)
    placed[order] = values.astype(np.int64)
    return placed


def _moved_host(timeline: Timeline, script: Script, seen: _Seen) -> tuple[Ints, Ints]:
    """Host times between two actions stretch as the time between those does."""
    host = timeline.host
    first = float(min(timeline.start_ns, host.start_ns.min()))
    ends = (host.start_ns + host.duration_ns)[script.rows].astype(np.float64)
    # A sync begins when its host time is spent, and ends when the device has caught up.
    waits = script.wait != 0
    begins = host.start_ns[script.rows].astype(np.float64)[waits]
    profiled = np.concatenate([[first], ends, begins])
    replayed = np.concatenate([[seen.began], seen.acted, np.asarray(seen.issued)[waits]])
    last = float(_host_end(timeline))
    profiled = np.append(profiled, last + 1)
    replayed = np.append(replayed, (seen.acted[-1] if seen.acted else seen.began) + script.after_ns)
    order = np.lexsort((replayed, profiled))
    profiled, replayed = profiled[order], np.maximum.accumulate(replayed[order])
    stops = host.start_ns + host.duration_ns
    moved = [
        np.interp(times.astype(np.float64), profiled, replayed).astype(np.int64)
        for times in (host.start_ns, stops)
    ]
    return moved[0], moved[1]


def issue_ns(script: Script) -> float:
    """How long the host takes to issue the step once, from an idle device, its waits included."""
    return _walk(_lists(script), [0.0] * (int(script.stream.max(initial=-1)) + 1), 0.0)


def with_clean_phases(script: Script, clean: dict[str, float]) -> Script:
    """Host times brought to what each phase was measured to take, from an idle device.

    A phase may wait for the device in the middle, so its time is not simply proportional: the
    factor is looked for with which the phase, replayed alone, takes as long as measured. A long
    phase may fill the launch queue, and its time is then the device's: such a phase says nothing
    of the host, and takes the factor of those that do.
    """
    factors: dict[tuple[Phase, ...], float | None] = {}
    for phases, names in _CLEAN_PHASES.items():
        measured = sum(clean.get(name, 0.0) for name in names)
        mine = np.isin(script.phase, phases)
        if measured and mine.any():
            alone = _only(script, mine, keep_after=Phase.FORWARD in phases)
            blocked = issue_ns(with_host(alone, _FASTEST)) > _BLOCKED * measured
            factors[phases] = None if blocked else _factor(alone, measured)
    usual = _usual_factor(script, factors)
    by_action, after = np.ones(len(script.host_ns)), script.after_ns
    for phases, factor in factors.items():
        used = usual if factor is None else factor
        by_action[np.isin(script.phase, phases)] = used
        if Phase.FORWARD in phases:
            after *= used
    return replace(script, host_ns=script.scaled(by_action), after_ns=after)


def _usual_factor(script: Script, factors: dict[tuple[Phase, ...], float | None]) -> float:
    """What the profiler's host times come down to, over the phases that tell."""
    before = after = 0.0
    for phases, factor in factors.items():
        if factor is not None:
            host = float(script.host_ns[np.isin(script.phase, phases)].sum())
            before += host
            after += host * factor
    return after / before if before else 1.0


def with_host(script: Script, factor: float) -> Script:
    """The same step with all host times longer or shorter."""
    return replace(script, host_ns=script.scaled(factor), after_ns=script.after_ns * factor)


def with_wall(script: Script, wall_ns: float) -> Script:
    """Host times brought down so that the step takes a given time.

    For traces alone, where nothing else is known of the host without a profiler: what a replay
    of this says of its own step is empty, what it says of a changed one is not.
    """
    factor = _search(lambda tried: replay(with_host(script, tried)), wall_ns)
    return with_host(script, factor)


def _factor(script: Script, measured: float) -> float:
    """A phase takes longer the longer its host times are."""
    return _search(lambda tried: issue_ns(with_host(script, tried)), measured)


def _search(takes: Callable[[float], float], wanted: float) -> float:
    """By bisection: the factor with which something takes as long as wanted."""
    low, high = _FASTEST, _SLOWEST
    for _ in range(24):
        middle = (low + high) / 2
        if takes(middle) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _only(script: Script, mine: npt.NDArray[np.bool_], *, keep_after: bool) -> Script:
    """The actions of one phase, with the device work that they issue."""
    actions = np.flatnonzero(mine)
    counts = np.diff(script.first)[actions]
    kept = np.concatenate(
        [np.arange(script.first[a], script.first[a + 1]) for a in actions] or [np.empty(0, int)]
    ).astype(np.int64)
    return replace(
        script,
        host_ns=script.host_ns[actions],
        data_ns=script.data_ns[actions] if len(script.data_ns) else script.data_ns,
        wait=script.wait[actions],
        phase=script.phase[actions],
        first=np.concatenate([[0], np.cumsum(counts)]),
        after_ns=script.after_ns if keep_after else 0.0,
        device_ns=script.device_ns[kept],
        stream=script.stream[kept],
        depends=np.full(len(kept), -1, np.int64),
        order=script.order[kept],
        rows=script.rows[actions] if len(script.rows) else script.rows,
    )


def _turns(script: Script, turns: int) -> list[float]:
    """When the host and the device have finished each of several turns of the same step."""
    lists = _lists(script)
    free = [0.0] * (int(script.stream.max(initial=-1)) + 1)
    clock = 0.0
    ends = []
    for _ in range(turns):
        clock = _walk(lists, free, clock)
        ends.append(max(clock, *free) if free else clock)
    return ends


@dataclass(slots=True)
class _Seen:
    """When things happened in one turn: work started, actions were issued and done."""

    began: float
    device_free: float
    started: list[float] = field(default_factory=list)
    issued: list[float] = field(default_factory=list)
    acted: list[float] = field(default_factory=list)


class _Lists(NamedTuple):
    """A script as plain lists: a loop over these is fastest."""

    host: list[float]
    wait: list[int]
    counts: list[int]
    device: list[float]
    stream: list[int]
    depends: list[int] | None
    after: float
    latency: float
    gap: float


def _lists(script: Script) -> _Lists:
    waits_elsewhere = bool((script.depends >= 0).any())
    return _Lists(
        host=script.host_ns.tolist(),
        wait=script.wait.tolist(),
        counts=np.diff(script.first).tolist(),
        device=script.device_ns.tolist(),
        stream=script.stream.tolist(),
        depends=script.depends.tolist() if waits_elsewhere else None,
        after=script.after_ns,
        latency=script.latency_ns,
        gap=script.gap_ns,
    )


def _walk(lists: _Lists, free: list[float], clock: float, seen: _Seen | None = None) -> float:
    """One turn: the host's clock after it; the streams' ends are moved on in `free`."""
    host, wait, counts, device, streams, depends, after, latency, gap = lists
    ended = [0.0] * len(device)
    started = [0.0] * len(device)
    work = 0
    for spent, count, waits in zip(host, counts, wait, strict=True):
        clock += spent
        for work in range(work, work + count):  # noqa: B020  one counter over all actions
            if work >= QUEUE and started[work - QUEUE] > clock:
                clock = started[work - QUEUE]
            stream = streams[work]
            duration = device[work]
            if not duration:
                # Imagined away: neither launched nor in anybody's way.
                ended[work] = started[work] = free[stream]
                continue
            start = free[stream] + gap
            if start < clock + latency:
                start = clock + latency
            if depends is not None and depends[work] >= 0:
                start = max(start, ended[depends[work]])
            started[work] = start
            free[stream] = ended[work] = start + duration
        work += count > 0
        if seen is not None:
            seen.issued.append(clock)
        if waits:
            clock = max(clock, *free) if free else clock
        if seen is not None:
            seen.acted.append(clock)
    if seen is not None:
        seen.started = started
    return clock + after


def _issued(timeline: Timeline) -> Ints:
    """When each device event's launch call returned; its own start where the call is unknown."""
    host, device = timeline.host, timeline.device
    known = device.launch >= 0
    issued = device.start_ns.copy()
    issued[known] = (host.start_ns + host.duration_ns)[device.launch[known]]
    return issued


def _latency(timeline: Timeline) -> float:
    """From a launch call's return to the start of work that did not have to wait."""
    known = timeline.device.launch >= 0
    if not known.any():
        return 0.0
    waits = (timeline.device.start_ns - _issued(timeline))[known]
    seen = max(0.0, float(np.percentile(waits, 10)))
    return seen if seen < _LONGEST_LATENCY_NS else _USUAL_LATENCY_NS


def _host_end(timeline: Timeline) -> int:
    """When the host's part of the step ends, which may be long before the device's."""
    host = timeline.host
    return int((host.start_ns + host.duration_ns).max()) if len(host) else timeline.end_ns


def _waited(timeline: Timeline, rows: Ints, is_sync: npt.NDArray[np.bool_]) -> Floats:
    """How long the host stood in each sync for the device: until the last work then running."""
    host, device = timeline.host, timeline.device
    waited = np.zeros(len(rows))
    if not len(device):
        return waited
    issued, ends = _issued(timeline), device.start_ns + device.duration_ns
    by_issue = np.argsort(issued, kind="stable")
    latest = np.maximum.accumulate(ends[by_issue])
    starts = host.start_ns[rows[is_sync]]
    stops = starts + host.duration_ns[rows[is_sync]]
    at = np.searchsorted(issued[by_issue], stops, side="right") - 1
    until = np.where(at >= 0, np.minimum(latest[np.maximum(at, 0)], stops), starts)
    waited[is_sync] = np.clip(until - starts, 0, None)
    return waited


def _data_before(timeline: Timeline, ends: Floats) -> Floats:
    """How much of the time between consecutive actions went into waiting for the next batch."""
    host = timeline.host
    waiting = np.flatnonzero(host.kind == HostKind.DATA)
    # Loaders may nest: what is inside another's wait is not waited for twice.
    outer = [row for row in waiting.tolist() if host.parent[row] not in set(waiting.tolist())]
    spent = np.zeros(len(ends) - 1)
    for row in outer:
        begins = float(host.start_ns[row])
        stops = begins + float(host.duration_ns[row])
        spent += np.clip(np.minimum(ends[1:], stops) - np.maximum(ends[:-1], begins), 0.0, None)
    return spent


def _phases(timeline: Timeline, rows: Ints) -> npt.NDArray[np.int8]:
    """Phases as the clean measurement cuts them: gradients are zeroed outside the optimizer's."""
    host = timeline.host
    phase = host.phase[rows].copy()
    zeroing = np.array(["zero_grad" in name for name in timeline.names] or [False])
    row = rows.copy()
    while True:
        known = row >= 0
        if not known.any():
            return phase
        phase[known & zeroing[host.name[row]]] = Phase.FORWARD
        row[known] = host.parent[row[known]]


def _dependencies(timeline: Timeline, order: Ints) -> Ints:
    """Work on another stream that each piece of work was seen to wait for.

    Traces name no event edges, so the observed order stands in: work that was issued long before
    it started, on a stream that was free, started when the last work elsewhere ended.
    """
    device = timeline.device
    stream = device.stream[order]
    depends = np.full(len(order), -1, np.int64)
    if len(np.unique(stream)) < 2:
        return depends
    start, end = device.start_ns[order], (device.start_ns + device.duration_ns)[order]
    issued = _issued(timeline)[order]
    last_on: dict[int, int] = {}
    finished = np.argsort(end, kind="stable")
    for work in np.argsort(start, kind="stable"):
        mine = int(stream[work])
        before = last_on.get(mine)
        ready = max(int(issued[work]), int(end[before]) if before is not None else 0)
        if start[work] - ready > _STREAM_WAIT_NS:
            at = int(np.searchsorted(end[finished], start[work], side="right")) - 1
            if at >= 0 and stream[finished[at]] != mine and finished[at] < work:
                depends[work] = finished[at]
        last_on[mine] = int(work)
    return depends
