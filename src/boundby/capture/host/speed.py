"""The host's pace while a script runs: looked at again and again between its steps.

What waits for the host is as uncertain as that. Loaded before the script: nothing heavy is
imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from boundby.model.host_speed import addition_ns

_ADDITIONS = 1_000  # 25 to 50 us a sample
_LOOPS = 3  # the fastest of them counts
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
            # The best of a few: one may have been interrupted.
            self.seen.append(min(addition_ns(_ADDITIONS) for _ in range(_LOOPS)))
            self._last = now
