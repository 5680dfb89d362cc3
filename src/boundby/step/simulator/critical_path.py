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
from boundby.step.simulator.simulate import steady_turn


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


class _Place(NamedTuple):
    """A moment on the way back: the end or the start of work, or the host before action `number` is
    done."""

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
        self._script = launches
        self._seen, self._end = steady_turn(launches)
        self._begin = self._seen.device_free
        self._first = launches.first.tolist()
        self._action = np.repeat(np.arange(len(launches.host_ns)), np.diff(launches.first)).tolist()
        self._previous = previous_on_stream(launches.stream)
        self._latest_of = _latest(np.asarray(self._seen.ended))
        self._found: list[Segment] = []
        self._now = self._end

    def segments(self) -> list[Segment]:
        place = self._last()
        while place is not None and self._now > self._begin:
            place = self._before(place)
        return self._found[::-1]

    def _spend(self, kind: PathKind, number: int, since: float) -> None:
        """Attribute the time since then to this segment, as far as it is inside the step."""
        ns = self._now - max(since, self._begin)
        if ns > 0:
            self._found.append(Segment(kind, number, ns))
        self._now = min(self._now, since)

    def _last(self) -> _Place | None:
        seen, launches = self._seen, self._script
        if seen.acted[-1] + launches.after_ns >= self._end:
            self._spend(PathKind.END, 0, seen.acted[-1])
            return _Place("done", len(seen.acted) - 1)
        return self._latest(len(seen.ended))

    def _latest(self, count: int) -> _Place | None:
        """The latest end among the first `count` pieces of work."""
        return _Place("ends", self._latest_of[count - 1]) if count else None

    def _before(self, place: _Place) -> _Place | None:
        if place.at == "done":
            return self._before_done(place.number)
        if place.at == "ends":
            return self._before_end(place.number)
        if place.at == "starts":
            return self._before_start(place.number)
        return self._before_issue(place.number)

    def _before_done(self, action: int) -> _Place | None:
        """An action is done when it was issued, or when what it waits for has ended."""
        seen, launches = self._seen, self._script
        if seen.acted[action] <= seen.issued[action]:
            return _Place("issued", action)
        awaited = int(launches.until[action]) if len(launches.until) else -1
        if awaited >= 0:
            return _Place("ends", awaited)
        return self._latest(self._first[action + 1])

    def _before_issue(self, action: int) -> _Place | None:
        """The host spent its time, or waited for room in the launch queue."""
        seen = self._seen
        done = seen.acted[action - 1] if action else seen.began
        since = done + float(self._script.host_ns[action])
        if self._now > since:
            queue = LAUNCH_QUEUE.value
            for work in range(self._first[action], self._first[action + 1]):
                if work >= queue and seen.started[int(work - queue)] == self._now:
                    return _Place("starts", int(work - queue))
        self._spend(PathKind.HOST, action, done)
        return _Place("done", action - 1) if action else None

    def _before_end(self, work: int) -> _Place | None:
        """Work ends its duration after its start, or with the work before it on its stream."""
        seen, lasts = self._seen, float(self._script.device_ns[work])
        previous = self._previous[work]
        if not lasts or seen.started[work] + lasts < seen.ended[work]:
            return _Place("ends", previous) if previous >= 0 else None
        self._spend(PathKind.KERNEL, work, seen.started[work])
        return _Place("starts", work)

    def _before_start(self, work: int) -> _Place | None:
        """Work starts when it was launched, its stream is free and what it waits for has ended: at
        the last of these."""
        seen, launches = self._seen, self._script
        launched = seen.launched[work] + launches.latency_ns
        depends = int(launches.depends[work])
        if depends >= 0 and seen.ended[depends] >= self._now:
            return _Place("ends", depends)
        if launched >= self._now:
            self._spend(PathKind.LATENCY, work, seen.launched[work])
            return _Place("issued", self._action[work])
        previous = self._previous[work]
        self._spend(PathKind.GAP, work, self._now - launches.gap_ns)
        return _Place("ends", previous) if previous >= 0 else None


def _latest(ended: Floats) -> list[int]:
    """Up to each piece of work, the one that ended last."""
    is_latest = ended >= np.maximum.accumulate(ended)
    found: list[int] = np.maximum.accumulate(np.where(is_latest, np.arange(len(ended)), 0)).tolist()
    return found


def previous_on_stream(stream: Ints) -> list[int]:
    """The previous operation on each one's stream; -1 for none."""
    before = np.full(len(stream), -1, np.int64)
    for one in np.unique(stream):
        rows = np.flatnonzero(stream == one)
        before[rows[1:]] = rows[:-1]
    found: list[int] = before.tolist()
    return found
