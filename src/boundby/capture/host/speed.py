"""The host's speed while a script runs: sampled repeatedly between its steps.

Times that depend on the host are as uncertain as its speed. Loaded before the script: nothing heavy
is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from boundby.model.host_speed import addition_ns

_ADDITIONS = 1_000  # 25 to 50 us a sample
_LOOPS = 3  # the fastest of them counts
# Samples closer together than this see the same speed.
_APART_NS = 10_000_000


class HostSpeedSampler:
    """All samples so far, in ns per addition."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.samples_ns: list[float] = []
        self._clock = clock
        self._last: int | None = None

    def sample(self) -> None:
        """Take a sample (about 70 us of Python), unless one was just taken."""
        now = self._clock()
        if self._last is None or now - self._last >= _APART_NS:
            # The minimum of a few: one may have been interrupted.
            self.samples_ns.append(min(addition_ns(_ADDITIONS) for _ in range(_LOOPS)))
            self._last = now
