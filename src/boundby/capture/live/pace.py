"""The host's pace: what an addition in Python takes, looked at again and again.

Cores of rented machines are shared with strangers: on one H200's host the same loop took 545 us or
1050 us, changing within seconds, while nothing else of one's own ran. What waits for the host is as
uncertain as that. Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_ADDITIONS = 1_000
_LOOPS = 3
# Looks that follow each other closer than this see the same.
_APART_NS = 10_000_000


class Pace:
    """Every look so far, in ns for one addition."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.seen: list[float] = []
        self._clock = clock
        self._last: int | None = None

    def look(self) -> None:
        """Some 70 us of Python, unless it has just been looked."""
        now = self._clock()
        if self._last is None or now - self._last >= _APART_NS:
            self.seen.append(addition_ns(self._clock))
            self._last = now


def addition_ns(clock: Callable[[], int] = time.perf_counter_ns) -> float:
    """One addition of two floats in a plain loop; the best of a few, to be without interrupts."""
    best = float("inf")
    for _ in range(_LOOPS):
        total = 0.0
        began = clock()
        for _ in range(_ADDITIONS):
            total += 1.5
        best = min(best, (clock() - began) / _ADDITIONS)
    return best
