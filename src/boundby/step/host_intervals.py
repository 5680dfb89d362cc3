"""The source line of the host at every moment of a step.

Inside an operator or a library function, it is the line that led there. Between two calls of a
function, it is the line of the second one: time before a call mostly prepares its arguments. After
the last call, it is the line of the last. If the function itself was sampled meanwhile
(`Timeline.samples`), it is the sampled line; otherwise one sampled between the same two calls at
another time, if any.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.model import PYTHON_FRAMES, HostEvents, Ints, Timeline

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIntervals:
    """Columns, one row per interval of one thread's time, in order of thread, then of time.

    `row` is the innermost host row, -1 between two outermost ones; `source` the user's line,
    `inside` the line of a library that it led to, -1 for none.
    """

    thread: Ints
    start_ns: Ints
    end_ns: Ints
    row: Ints
    source: Ints
    inside: Ints

    def on(self, thread: int) -> slice:
        """The intervals of one thread."""
        first, last = np.searchsorted(self.thread, [thread, thread + 1])
        return slice(int(first), int(last))


def find_host_intervals(timeline: Timeline) -> HostIntervals:
    """The intervals of all threads, each with its line."""
    host = timeline.host
    builder = _IntervalBuilder(host)
    changes = np.flatnonzero(np.diff(host.thread)) + 1
    edges = [0, *changes.tolist(), len(host)]
    for first, last in itertools.pairwise(edges):
        builder.walk(first, last)
    columns = _with_samples(builder.found, timeline)
    table = np.array(columns, np.int64).reshape(-1, 5)
    order = np.lexsort((table[:, 0], table[:, 4]))
    start, end, row, place, thread = table[order].T
    own_line, is_sample = place < 0, place >= len(host)
    called = np.append(called_from(host), -1)
    lines = np.append(host.source, -1)
    inside = np.append(host.inside if host.inside is not None else np.full(len(host), -1), -1)
    innermost_call = np.where(is_sample | own_line, -1, place)
    source = np.where(own_line, lines[row], called[innermost_call])
    if timeline.samples is not None and is_sample.any():
        source[is_sample] = timeline.samples.source[place[is_sample] - len(host)]
    return HostIntervals(
        thread=thread,
        start_ns=start,
        end_ns=end,
        row=row,
        source=source,
        inside=np.where(is_sample, -1, np.where(own_line, inside[row], inside[innermost_call])),
    )


def no_intervals() -> HostIntervals:
    """No intervals, for a step without recorded events."""
    empty = np.empty(0, np.int64)
    return HostIntervals(
        thread=empty,
        start_ns=empty,
        end_ns=empty,
        row=empty,
        source=empty,
        inside=empty,
    )


def intervals_at(where: HostIntervals, timeline: Timeline, other: Timeline) -> HostIntervals:
    """The same intervals at the times of another timeline of the same events."""
    before, after = timeline.host, other.host
    starts, ends = where.start_ns.copy(), where.end_ns.copy()
    for thread in np.unique(where.thread):
        rows, thread_intervals = before.thread == thread, where.on(int(thread))
        old = np.concatenate([before.start_ns[rows], (before.start_ns + before.duration_ns)[rows]])
        new = np.concatenate([after.start_ns[rows], (after.start_ns + after.duration_ns)[rows]])
        order = np.lexsort((new, old))
        # Times are offsets from the first, because float64 is exact to the nanosecond for those
        # only.
        offsets_before = (old[order] - old[order[0]]).astype(np.float64)
        times_after = np.maximum.accumulate(new[order]).astype(np.float64)
        for times in (starts, ends):
            offsets = (times[thread_intervals] - old[order[0]]).astype(np.float64)
            times[thread_intervals] = np.interp(offsets, offsets_before, times_after).astype(
                np.int64
            )
    return HostIntervals(
        thread=where.thread,
        start_ns=starts,
        end_ns=ends,
        row=where.row,
        source=where.source,
        inside=where.inside,
    )


def main_thread(timeline: Timeline) -> int:
    """The thread with most Python, or with most events if no Python was recorded."""
    host = timeline.host
    python = host.thread[np.isin(host.kind, PYTHON_FRAMES)]
    threads, counts = np.unique(python if len(python) else host.thread, return_counts=True)
    return int(threads[np.argmax(counts)]) if len(threads) else 0


def called_from(host: HostEvents) -> Rows:
    """The line that called each row; a trace knows only where a function is defined."""
    if host.called is not None:
        return host.called
    python = np.isin(host.kind, PYTHON_FRAMES) & (host.parent >= 0)
    return np.where(python, host.source[host.parent], host.source)


# Start, end, innermost row, the row whose call gives its line (or a sample: its index after the
# rows), thread.
_Interval = tuple[int, int, int, int, int]
_ITSELF = -1  # definition: no row inside


class _IntervalBuilder:
    """Divides the time of each thread into intervals."""

    def __init__(self, host: HostEvents) -> None:
        self._starts = host.start_ns.tolist()
        self._ends = (host.start_ns + host.duration_ns).tolist()
        self._threads = host.thread.tolist()
        self._clock = 0
        self.found: list[_Interval] = []

    def walk(self, first: int, last: int) -> None:
        """Go through the rows of one thread, which are in order of time, outer ones first."""
        if first == last:
            return
        starts, ends = self._starts, list(self._ends)
        around: list[int] = []  # the open rows
        latest: list[int] = []  # for each of those the inner row that ended last
        self._clock = starts[first]
        for row in range(first, last):
            while around and ends[around[-1]] <= starts[row]:
                self._close(around, latest, ends)
            self._add(starts[row], around[-1] if around else -1, row)
            if around:
                # With clocks that disagree, an event may end after the one around it.
                ends[row] = min(ends[row], ends[around[-1]])
            around.append(row)
            latest.append(_ITSELF)
        while around:
            self._close(around, latest, ends)

    def _close(self, around: list[int], latest: list[int], ends: list[int]) -> None:
        row = around.pop()
        self._add(ends[row], row, latest.pop())
        if latest:
            latest[-1] = row

    def _add(self, until: int, row: int, place: int) -> None:
        if until > self._clock:
            self.found.append((self._clock, until, row, place, self._threads[max(row, place)]))
            self._clock = until


def _with_samples(found: list[_Interval], timeline: Timeline) -> list[_Interval]:
    """The same, with intervals of a function's own code divided among its samples."""
    samples, rows = timeline.samples, len(timeline.host)
    if samples is None or not len(samples):
        return found
    samples_of: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for at, (row, start_ns) in enumerate(
        zip(samples.row.tolist(), samples.start_ns.tolist(), strict=True)
    ):
        samples_of[row].append((start_ns, rows + at))
    similar = _SimilarIntervals(timeline)
    result: list[_Interval] = []
    unsampled: list[_Interval] = []
    for interval in found:
        start, end, row, _, thread = interval
        inside = [sample for sample in samples_of.get(row, ()) if start <= sample[0] < end]
        if not inside:
            unsampled.append(interval)
            continue
        similar.add(interval, [place for _, place in inside])
        # Each sample covers the time that is nearer to it than to the others.
        edges = [start, *((a[0] + b[0]) // 2 for a, b in itertools.pairwise(inside)), end]
        for sample, low, high in zip(inside, edges, edges[1:], strict=False):
            result.append((low, high, row, sample[1], thread))
    return result + [similar.with_line(interval) for interval in unsampled]


class _SimilarIntervals:
    """Intervals between the same two calls of the same function, and the lines sampled in them.

    A function that is shorter than the sampling interval is sampled in some of its calls only:
    those lines are distributed over the other calls in turn.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._names = timeline.host.name.tolist()
        self._lines = called_from(timeline.host).tolist()
        self._cycles: dict[tuple[int, ...], itertools.cycle[int]] = {}
        self._sampled: dict[tuple[int, ...], list[int]] = defaultdict(list)

    def add(self, interval: _Interval, places: list[int]) -> None:
        self._sampled[self._key(interval)] += places

    def with_line(self, interval: _Interval) -> _Interval:
        start, end, row, _, thread = interval
        key = self._key(interval)
        if row < 0 or key not in self._sampled:
            return interval
        places = self._cycles.setdefault(key, itertools.cycle(self._sampled[key]))
        return start, end, row, next(places), thread

    def _key(self, interval: _Interval) -> tuple[int, ...]:
        _, _, row, place, thread = interval
        before = (self._names[place], self._lines[place]) if place >= 0 else (_ITSELF, _ITSELF)
        return thread, self._names[row] if row >= 0 else -1, *before
