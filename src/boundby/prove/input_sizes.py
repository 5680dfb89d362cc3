"""Step times scaled to one input size, for scripts whose batches differ in size.

A block of four steps may happen to have long batches. Times are scaled by the dependence of the
unchanged program's time on the number of input elements: the same scale for every variant.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from itertools import combinations

# Fewer steps of the unchanged program do not show how its time depends on the size.
_MIN_STEPS, _MAX_STEPS = 5, 60
# Sizes that differ by less than this make no difference worth correcting.
_VARYING = 1.02


class InputSizes:
    """How the unchanged program's step time depends on its number of input elements."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float]] = deque(maxlen=_MAX_STEPS)
        self._usual: float | None = None  # the size that all times are scaled to

    def add(self, elements: int, ns: float) -> None:
        """Record a step of the unchanged program."""
        self._steps.append((elements, ns))

    def scale(self) -> Callable[[int, float], float]:
        """The factor from the time of a step of this many elements to that of the usual size."""
        sizes = [size for size, _ in self._steps]
        lowest, highest = min(sizes, default=0), max(sizes, default=0)
        if len(sizes) < _MIN_STEPS or highest <= _VARYING * lowest:
            return _as_it_is
        # The median of the slopes between pairs of steps: some steps were disturbed, or first uses.
        slope = statistics.median(
            (ns - other_ns) / (size - other)
            for (size, ns), (other, other_ns) in combinations(self._steps, 2)
            if size != other
        )
        intercept = statistics.median(ns - slope * size for size, ns in self._steps)
        if slope <= 0 or intercept + slope * lowest <= 0:
            return _as_it_is
        if self._usual is None:
            self._usual = statistics.fmean(sizes)
        usual = intercept + slope * self._usual

        def scaled(elements: int, ns: float) -> float:
            # Not extrapolated beyond the sizes that were seen.
            return ns * usual / (intercept + slope * min(max(elements, lowest), highest))

        return scaled


def _as_it_is(elements: int, ns: float) -> float:
    return ns
