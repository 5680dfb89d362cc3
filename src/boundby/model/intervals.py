"""Time intervals: their union, and how much of another interval it covers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model import Ints

Floats = npt.NDArray[np.float64]


def union(starts: Ints, durations: Ints) -> tuple[Ints, Ints]:
    """Return starts and ends of the covered intervals, sorted and disjoint."""
    if not len(starts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(starts, kind="stable")
    begins, ends = starts[order], (starts + durations)[order]
    latest = np.maximum.accumulate(ends)
    new = np.concatenate([[True], begins[1:] > latest[:-1]])
    return begins[new], np.concatenate([latest[:-1][new[1:]], latest[-1:]])


class Coverage:
    """How much of an interval is covered by a set of intervals that may overlap."""

    def __init__(self, starts: Ints, durations: Ints) -> None:
        begins, ends = union(starts, durations)
        self._times = np.empty(2 * len(begins), np.int64)
        self._times[0::2], self._times[1::2] = begins, ends
        self._covered = np.zeros(2 * len(begins))
        total = np.cumsum(ends - begins)
        self._covered[1::2] = total
        self._covered[2::2] = total[:-1] if len(total) else total

    def between(self, low: Ints, high: Ints) -> Floats:
        if not len(self._times):
            return np.zeros(len(low))
        # Times are offsets from the first, because float64 is exact to the nanosecond for those
        # only.
        origin = self._times[0]
        times = (self._times - origin).astype(np.float64)

        def until(at: Ints) -> Floats:
            covered_ns: Floats = np.interp((at - origin).astype(np.float64), times, self._covered)
            return covered_ns

        covered: Floats = until(np.maximum(low, high)) - until(low)
        return covered
