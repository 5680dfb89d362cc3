"""The critical path: what the end of the step waited for, back to its beginning.

Each moment of the step belongs to one segment: a kernel, the host before a launch, the latency of a
launch, the gap between kernels of a stream. Of several conditions that a kernel waited for, the
last one is on the path. Waits are not segments: what is waited for is.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from boundby.model import Ints
from boundby.model.assumptions.device import LAUNCH_QUEUE
from boundby.step.simulator.launch_sequence import Floats, LaunchSequence
from boundby.step.simulator.simulate import steady_iteration


class PathKind(enum.Enum):
    """The kind of a segment of the path, and what its number counts."""

    KERNEL = enum.auto()  # work
    LATENCY = enum.auto()  # the work that was launched
    GAP = enum.auto()  # the work after it
    HOST = enum.auto()  # the action that the host's time leads to
    END = enum.auto()  # the host after its last action


class Segment(NamedTuple):
    kind: PathKind
    number: int
    ns: float


class _Moment(NamedTuple):
    """A point on the way back along the path: the end or the start of a piece of work, or the host
    before action `number` is done."""

    at: str
    number: int


def critical_path(launches: LaunchSequence) -> list[Segment]:
    """The segments from the step's beginning to its end, in a loop's steady state.

    Their times add up to the step's.
    """
    if not len(launches.host_ns):
        return [Segment(PathKind.END, 0, launches.after_ns)] if launches.after_ns > 0 else []
    return _Path(launches).segments()


class _Path:
    def __init__(self, launches: LaunchSequence) -> None:
        self._launches = launches
        self._times, self._end = steady_iteration(launches)
        self._begin = self._times.device_free
        self._first = launches.first.tolist()
        self._action = np.repeat(np.arange(len(launches.host_ns)), np.diff(launches.first)).tolist()
        self._previous = previous_on_stream(launches.stream)
        self._latest_of = _latest(np.asarray(self._times.ended))
        self._segments: list[Segment] = []
        self._now = self._end

    def segments(self) -> list[Segment]:
        moment = self._last()
        while moment is not None and self._now > self._begin:
            moment = self._before(moment)
        return self._segments[::-1]

    def _attribute(self, kind: PathKind, number: int, since: float) -> None:
        """Attribute the time since then to this segment, as far as it is inside the step."""
        ns = self._now - max(since, self._begin)
        if ns > 0:
            self._segments.append(Segment(kind, number, ns))
        self._now = min(self._now, since)

    def _last(self) -> _Moment | None:
        times, launches = self._times, self._launches
        if times.acted[-1] + launches.after_ns >= self._end:
            self._attribute(PathKind.END, 0, times.acted[-1])
            return _Moment("done", len(times.acted) - 1)
        return self._latest(len(times.ended))

    def _latest(self, count: int) -> _Moment | None:
        """The latest end among the first `count` pieces of work."""
        return _Moment("ends", self._latest_of[count - 1]) if count else None

    def _before(self, moment: _Moment) -> _Moment | None:
        if moment.at == "done":
            return self._before_done(moment.number)
        if moment.at == "ends":
            return self._before_end(moment.number)
        if moment.at == "starts":
            return self._before_start(moment.number)
        return self._before_issue(moment.number)

    def _before_done(self, action: int) -> _Moment | None:
        """An action is done when it was issued, or when what it waits for has ended."""
        times, launches = self._times, self._launches
        if times.acted[action] <= times.issued[action]:
            return _Moment("issued", action)
        awaited = int(launches.until[action]) if len(launches.until) else -1
        if awaited >= 0:
            return _Moment("ends", awaited)
        return self._latest(self._first[action + 1])

    def _before_issue(self, action: int) -> _Moment | None:
        """The host spent its time, or waited for room in the launch queue."""
        times = self._times
        done = times.acted[action - 1] if action else times.began
        since = done + float(self._launches.host_ns[action])
        if self._now > since:
            queue = LAUNCH_QUEUE.value
            for work in range(self._first[action], self._first[action + 1]):
                if work >= queue and times.started[int(work - queue)] == self._now:
                    return _Moment("starts", int(work - queue))
        self._attribute(PathKind.HOST, action, done)
        return _Moment("done", action - 1) if action else None

    def _before_end(self, work: int) -> _Moment | None:
        """Work ends its duration after its start, or with the work before it on its stream."""
        times, duration = self._times, float(self._launches.device_ns[work])
        previous = self._previous[work]
        if not duration or times.started[work] + duration < times.ended[work]:
            return _Moment("ends", previous) if previous >= 0 else None
        self._attribute(PathKind.KERNEL, work, times.started[work])
        return _Moment("starts", work)

    def _before_start(self, work: int) -> _Moment | None:
        """Work starts when it was launched, its stream is free and what it waits for has ended: at
        the last of these."""
        times, launches = self._times, self._launches
        launched = times.launched[work] + launches.latency_ns
        depends = int(launches.depends[work])
        if depends >= 0 and times.ended[depends] >= self._now:
            return _Moment("ends", depends)
        if launched >= self._now:
            self._attribute(PathKind.LATENCY, work, times.launched[work])
            return _Moment("issued", self._action[work])
        previous = self._previous[work]
        self._attribute(PathKind.GAP, work, self._now - launches.gap_ns)
        return _Moment("ends", previous) if previous >= 0 else None


def _latest(ended: Floats) -> list[int]:
    """For each piece of work, in order of issue, the piece that ended last among it and those
    before."""
    is_latest = ended >= np.maximum.accumulate(ended)
    latest: list[int] = np.maximum.accumulate(
        np.where(is_latest, np.arange(len(ended)), 0)
    ).tolist()
    return latest


def previous_on_stream(stream: Ints) -> list[int]:
    """The previous operation on each one's stream; -1 for none."""
    before = np.full(len(stream), -1, np.int64)
    for number in np.unique(stream):
        rows = np.flatnonzero(stream == number)
        before[rows[1:]] = rows[:-1]
    previous: list[int] = before.tolist()
    return previous
