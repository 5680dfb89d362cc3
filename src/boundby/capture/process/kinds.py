"""Kinds of steps: which one is the main kind, and how many of its steps a window has.

Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# A window that needs N steps of the main kind gives up after this many times N steps of any kind;
# later if no step of the main kind was profiled. A row of evaluation or rollout steps counts as
# one, unless it takes longer than this and longer than everything before it.
_MOST_OTHERS, _MOST_WITHOUT_ONE = 4, 12
_LONG_ROW_NS = 1e9  # assumed: a row of other steps this long is an evaluation
# Steps are steady when the last ones differ by at most this share; or, on a busy host where they
# never do, when they are no longer faster than the steps before them.
_STEADY = 0.10
STEADY_STEPS = 3  # for a median
_FASTER = 0.95  # assumed: less is within the noise of a busy host


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    kind: str
    ns: float


def main_kind(samples: Sequence[Sample]) -> str | None:
    """The kind with most time, counted by its median step, so that compilation does not count.

    Only kinds seen at least three times count, if there are any; then those seen twice.
    """
    times: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        times[sample.kind].append(sample.ns)
    if not times:
        return None
    often = min(3, max(map(len, times.values())))
    seen = [kind for kind in times if len(times[kind]) >= often]
    return max(seen, key=lambda kind: len(times[kind]) * statistics.median_low(times[kind]))


def are_steady(times: Sequence[float]) -> bool:
    """Whether the last of these steps, of one kind, are as fast as the following ones will be."""
    before, recent = times[-2 * STEADY_STEPS : -STEADY_STEPS], times[-STEADY_STEPS:]
    if len(recent) < STEADY_STEPS:
        return False
    middle = statistics.median(recent)
    if max(recent) - min(recent) <= _STEADY * middle:
        return True
    return len(before) == STEADY_STEPS and middle >= _FASTER * statistics.median(before)


class KindCount:
    """Counts steps of the main kind in an open window, and how long it has been waited for.

    It is kept while steps run, because finding the main kind takes time, which must not be part of
    a clean step.
    """

    def __init__(self, clock: Callable[[], int], in_row: Callable[[], bool]) -> None:
        self._clock = clock
        self._in_row = in_row
        self._began = self._main_at = clock()  # the end of the last step of the main kind
        self._was_in_row = False
        self._others = 0  # steps of other kinds; a row counts as one
        self.main: str | None = None  # None: any kind counts
        self.kinds: list[str] = []
        self.count = 0

    def open(self, main: str | None) -> None:
        """A window opens that counts steps of this kind."""
        self.main = main
        self.kinds, self.count, self._others = [], 0, 0
        self._main_at = self._clock()

    def start_over(self) -> None:
        """Forget when the run began: more important steps begin."""
        self._began = self._clock()

    def add(self, kind: str, now: int | None = None) -> None:
        """A step of this kind has ended, `now` by the clock."""
        self.kinds.append(kind)
        was_in_row, self._was_in_row = self._was_in_row, self._in_row()
        if self.main is None or kind == self.main:
            self.count += 1
            self._main_at = self._clock() if now is None else now
        else:
            self._others += not (was_in_row and self._was_in_row)

    def has_given_up(self, wanted: int, *, is_profiled: bool) -> bool:
        """Whether the main kind has been waited for long enough; without a profiled one longer."""
        if self.count >= wanted or len(self.kinds) < _MOST_OTHERS * (wanted + 1):
            return False
        is_missed = is_profiled and not self.count
        most = (_MOST_WITHOUT_ONE if is_missed else _MOST_OTHERS) * (wanted + 1)
        if len(self.kinds) < most:
            return False
        row_ns = self._clock() - self._main_at
        is_long = row_ns > max(_LONG_ROW_NS, self._main_at - self._began)
        return (self._was_in_row and is_long) or self.count + self._others >= most
