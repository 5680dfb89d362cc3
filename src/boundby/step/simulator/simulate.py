"""The simulation of a step: the host's clock, the streams' ends, the period of a loop of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from boundby.model import Ints, Timeline
from boundby.model.assumptions.device import LAUNCH_QUEUE
from boundby.step.simulator.launch_sequence import Floats, LaunchSequence, host_end
from boundby.step.simulator.segments import Segments
from boundby.step.simulator.waits import EVERYTHING

# The device reaches a steady state in its second iteration: the period is the third's ends minus
# the second's.
_ITERATIONS = 3
# Iterations that are simulated until the one that falls behind determines the end.
_MOST_MORE_ITERATIONS = 8
_ROUNDING = 1e-9  # relative error of sums of float64


def replay(launches: LaunchSequence) -> float:
    """The step's period in ns, in the steady state of a loop."""
    if not len(launches.host_ns):
        return launches.after_ns
    iterate = _iteration_of(launches)
    free = [0.0] * (int(launches.stream.max(initial=-1)) + 1)
    clock = iterate(free, 0.0)
    # If the host waits until the device is idle, every iteration is like the first.
    latency = launches.latency_ns
    if launches.gap_ns <= latency and max(free, default=0.0) + launches.gap_ns <= clock + latency:
        return clock
    states = []
    for _ in range(_ITERATIONS - 1):
        clock = iterate(free, clock)
        states.append((clock, *free))
    # Of the host and of each stream: one that falls behind may still end before another.
    return float(max(later - earlier for earlier, later in zip(*states, strict=True)))


def simulated_timeline(timeline: Timeline, launches: LaunchSequence) -> Timeline:
    """The same events at their simulated times, in a loop's steady state.

    The step lasts from the end of the previous one's device work to the end of its own. Host events
    move with the launches and syncs around them.
    """
    lists = _as_lists(launches)
    free = [0.0] * (int(launches.stream.max(initial=-1)) + 1)
    clock = _simulate_once(lists, free, 0.0)
    times = IterationTimes(began=clock, device_free=max(free, default=clock))
    _simulate_once(lists, free, clock, times)
    host, device = timeline.host, timeline.device
    moved = np.empty(len(device), np.int64)
    moved[launches.order] = np.asarray(times.started)
    starts, ends = _moved_host(timeline, launches, times)
    return msgspec.structs.replace(
        timeline,
        start_ns=int(times.device_free),
        end_ns=int(max(free, default=clock)),
        host=msgspec.structs.replace(host, start_ns=starts, duration_ns=ends - starts),
        device=msgspec.structs.replace(
            device, start_ns=moved, duration_ns=_in_order(launches.device_ns, launches.order)
        ),
    )


def _in_order(values: Floats, order: Ints) -> Ints:
    placed = np.empty(len(values), np.int64)
    placed[order] = values.astype(np.int64)
    return placed


def _moved_host(
    timeline: Timeline, launches: LaunchSequence, times: IterationTimes
) -> tuple[Ints, Ints]:
    """Host times between two actions stretch with the time between those."""
    host = timeline.host
    first = float(min(timeline.start_ns, host.start_ns.min(initial=timeline.start_ns)))
    ends = (host.start_ns + host.duration_ns)[launches.rows].astype(np.float64)
    # A sync begins when its host time is spent, and ends when the device has caught up.
    waits = launches.wait != 0
    begins = host.start_ns[launches.rows].astype(np.float64)[waits]
    profiled = np.concatenate([[first], ends, begins])
    replayed = np.concatenate([[times.began], times.acted, np.asarray(times.issued)[waits]])
    last = float(host_end(timeline))
    profiled = np.append(profiled, last + 1)
    replayed = np.append(
        replayed, (times.acted[-1] if times.acted else times.began) + launches.after_ns
    )
    order = np.lexsort((replayed, profiled))
    profiled, replayed = profiled[order], np.maximum.accumulate(replayed[order])
    stops = host.start_ns + host.duration_ns
    moved = [
        np.interp(moments.astype(np.float64), profiled, replayed).astype(np.int64)
        for moments in (host.start_ns, stops)
    ]
    return moved[0], moved[1]


def issue_ns(launches: LaunchSequence) -> float:
    """The host's time to issue the step once, from an idle device, its waits included."""
    return _simulate_once(
        _as_lists(launches), [0.0] * (int(launches.stream.max(initial=-1)) + 1), 0.0
    )


def _iteration_of(launches: LaunchSequence) -> Callable[[list[float], float], float]:
    """The function that simulates the sequence once: in numpy, or a plain loop if that is
    faster."""
    segments = Segments.of(launches, LAUNCH_QUEUE.value)
    return (
        segments.iterate if segments is not None else partial(_simulate_once, _as_lists(launches))
    )


def steady_iteration(launches: LaunchSequence) -> tuple[IterationTimes, float]:
    """The times of all events in one iteration of the steady state, and when its last work or call
    ended.

    The iteration begins when everything of the previous one has ended, at `device_free`.
    """
    lists, period = _as_lists(launches), replay(launches)
    free = [0.0] * (int(launches.stream.max(initial=-1)) + 1)
    clock = 0.0
    for _ in range(_ITERATIONS - 1):
        clock = _simulate_once(lists, free, clock)
    for _ in range(_MOST_MORE_ITERATIONS):
        before = [clock, *free]
        times = IterationTimes(began=clock, device_free=max(before))
        clock = _simulate_once(lists, free, clock, times)
        ends = [clock, *free]
        excess = max(ends) - max(before) - period
        if abs(excess) <= _ROUNDING * period:
            break
        if excess < 0:
            # What falls behind most, a stream or the host, does not end last yet: it will.
            delays = [end - start for end, start in zip(ends, before, strict=True)]
            slowest = delays.index(max(delays))
            ends[slowest] = max(ends)
            clock, free[:] = ends[0], ends[1:]
    return times, max(clock, *free) if free else clock


@dataclass(slots=True)
class IterationTimes:
    """Times of one iteration: when work was launched, started and ended, and when actions were
    issued and done."""

    began: float
    device_free: float
    launched: list[float] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    issued: list[float] = field(default_factory=list)
    acted: list[float] = field(default_factory=list)


class _Lists(NamedTuple):
    """A launch sequence as plain lists, over which a loop is fastest."""

    host: list[float]
    wait: list[int]
    until: list[int]
    counts: list[int]
    device: list[float]
    stream: list[int]
    depends: list[int] | None
    after: float
    latency: float
    gap: float


def _as_lists(launches: LaunchSequence) -> _Lists:
    waits_elsewhere = bool((launches.depends >= 0).any())
    return _Lists(
        host=launches.host_ns.tolist(),
        wait=launches.wait.tolist(),
        until=(
            launches.until if len(launches.until) else np.full(len(launches.wait), EVERYTHING)
        ).tolist(),
        counts=np.diff(launches.first).tolist(),
        device=launches.device_ns.tolist(),
        stream=launches.stream.tolist(),
        depends=launches.depends.tolist() if waits_elsewhere else None,
        after=launches.after_ns,
        latency=launches.latency_ns,
        gap=launches.gap_ns,
    )


def _simulate_once(
    lists: _Lists, free: list[float], clock: float, times: IterationTimes | None = None
) -> float:
    """One iteration: returns the host's clock after it and updates the streams' ends in `free`."""
    host, wait, until, counts, device, streams, depends, after, latency, gap = lists
    queue = LAUNCH_QUEUE.value
    ended = [0.0] * len(device)
    started = [0.0] * len(device)
    launched = [0.0] * len(device)
    work = 0
    for spent, count, waits, awaited in zip(host, counts, wait, until, strict=True):
        clock += spent
        for work in range(work, work + count):  # noqa: B020  one counter over all actions
            if work >= queue and started[work - queue] > clock:
                clock = started[work - queue]
            launched[work] = clock
            stream = streams[work]
            duration = device[work]
            if not duration:
                # Removed by an edit: neither launched nor executed.
                ended[work] = started[work] = free[stream]
                continue
            start = free[stream] + gap
            if start < clock + latency:
                start = clock + latency
            if depends is not None and depends[work] >= 0:
                start = max(start, ended[depends[work]])
            started[work] = start
            end = start + duration
            # Kernels of a graph may overlap; none ends before the previous one.
            free[stream] = ended[work] = end if end > free[stream] else free[stream]
        work += count > 0
        if times is not None:
            times.issued.append(clock)
        if waits and awaited >= 0:
            clock = max(clock, ended[awaited])
        elif waits and free:
            clock = max(clock, *free)
        if times is not None:
            times.acted.append(clock)
    if times is not None:
        times.launched, times.started, times.ended = launched, started, ended
    return clock + after
