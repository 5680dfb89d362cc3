"""The simulation in numpy, for sequences with many launches between the host's waits.

Between two waits both clocks are maxima of sums: the host is done with launch i when it has spent
its own time up to there, or as soon as the full queue lets it continue; work i ends after the
previous work on its stream, or after its own launch. Such a recurrence, `x[i] = max(x[i-1] + a[i],
b[i])`, is `cumsum(a) + maximum.accumulate(b - cumsum(a))`.

A segment ends at a wait, and after as much work as the queue holds: the starts that the host waits
for then belong to earlier segments.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boundby.model import Ints
from boundby.step.simulator.launch_sequence import Floats, LaunchSequence
from boundby.step.simulator.waits import EVERYTHING

# With less work per segment and stream, the plain loop is as fast: numpy's calls for one take about
# 60 us, the loop 0.25 us per piece of work.
_WORTHWHILE = 250


class _Segment(NamedTuple):
    first: int
    last: int
    host_ns: Floats  # from the segment's beginning until each launch is issued
    rest_ns: float  # from the last launch to the wait
    waits: bool
    until: int
    streams: list[tuple[int, Ints | slice]]


class Segments:
    """A sequence cut into segments; `iterate` goes through all of them once."""

    def __init__(self, launches: LaunchSequence, queue: int) -> None:
        self._launches, self._queue = launches, queue
        self._runs = launches.device_ns > 0
        # Kernels of a graph may overlap; none ends before the previous one.
        longer = np.maximum(0.0, launches.gap_ns + launches.device_ns)
        self._adds = np.where(self._runs, longer, 0.0)
        self._segments = self._cut()

    @classmethod
    def of(cls, launches: LaunchSequence, queue: int) -> Segments | None:
        """The segments of a sequence; None if the plain loop is faster, or streams wait for each
        other."""
        work = len(launches.device_ns)
        waits = int((launches.wait != 0).sum())
        streams = int(launches.stream.max(initial=0)) + 1
        pieces = (waits + work // queue + 1) * streams
        if work < _WORTHWHILE * pieces or (launches.depends >= 0).any():
            return None
        return cls(launches, queue)

    def iterate(self, free: list[float], clock: float) -> float:
        """One iteration: returns the host's clock after it and updates the streams' ends in
        `free`."""
        count = len(self._runs)
        started, ended = np.zeros(count), np.zeros(count)
        for segment in self._segments:
            if segment.last > segment.first:
                clocks = self._issued(segment, clock, started)
                for stream, rows in segment.streams:
                    at = clocks[_within(rows, segment.first)]
                    free[stream] = self._execute(rows, at, free[stream], started, ended)
                clock = float(clocks[-1])
            clock += segment.rest_ns
            if segment.waits and segment.until >= 0:
                clock = max(clock, float(ended[segment.until]))
            elif segment.waits:
                clock = max(clock, *free)
        return clock + self._launches.after_ns

    def _issued(self, segment: _Segment, clock: float, started: Floats) -> Floats:
        """When each launch of a segment is issued; a full queue blocks the host."""
        clocks = clock + segment.host_ns
        first = max(segment.first, self._queue)
        if first < segment.last:
            spent = segment.host_ns[first - segment.first :]
            room_ns = np.maximum.accumulate(
                started[first - self._queue : segment.last - self._queue] - spent
            )
            clocks[first - segment.first :] = spent + np.maximum(clock, room_ns)
        return clocks

    def _execute(
        self, rows: Ints | slice, issued: Floats, free_ns: float, started: Floats, ended: Floats
    ) -> float:
        """Execute a segment's work on one stream, which is free from `free_ns` on; return when it
        ends."""
        launches, runs = self._launches, self._runs[rows]
        earliest = issued + launches.latency_ns
        total = np.cumsum(self._adds[rows])
        if_idle = np.where(runs, earliest + launches.device_ns[rows] - total, -np.inf)
        ends = total + np.maximum(free_ns, np.maximum.accumulate(if_idle))
        ahead = np.concatenate([[free_ns], ends[:-1]])
        ended[rows] = ends
        started[rows] = np.where(runs, np.maximum(ahead + launches.gap_ns, earliest), ends)
        return float(ends[-1])

    def _cut(self) -> list[_Segment]:
        launches = self._launches
        passed = np.cumsum(launches.host_ns)
        # All work of one action is issued at once.
        issued = np.repeat(passed, np.diff(launches.first))
        until = launches.until if len(launches.until) else np.full(len(passed), EVERYTHING)
        endings = np.union1d(np.flatnonzero(launches.wait), [len(passed) - 1]).tolist()
        segments: list[_Segment] = []
        at, since = 0, 0.0
        for action in endings:
            end = int(launches.first[action + 1])
            for stop in [*range(at + self._queue, end, self._queue), end]:
                last = float(issued[stop - 1]) if stop > at else since
                now = float(passed[action]) if stop == end else last
                segments.append(
                    _Segment(
                        first=at,
                        last=stop,
                        host_ns=issued[at:stop] - since,
                        rest_ns=now - last,
                        waits=stop == end and bool(launches.wait[action]),
                        until=int(until[action]),
                        streams=self._by_stream(at, stop),
                    )
                )
                at, since = stop, now
        return segments

    def _by_stream(self, first: int, last: int) -> list[tuple[int, Ints | slice]]:
        streams = self._launches.stream[first:last]
        present = np.unique(streams).tolist()
        if len(present) == 1:
            return [(present[0], slice(first, last))]
        return [(stream, first + np.flatnonzero(streams == stream)) for stream in present]


def _within(rows: Ints | slice, first: int) -> Ints | slice:
    return slice(None) if isinstance(rows, slice) else rows - first
