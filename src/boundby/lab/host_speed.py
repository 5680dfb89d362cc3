"""The host's speed during an experiment, compared with its speed when the machine was saved.

Issuing work takes host time. On a host with shared cores the same call can take twice as long at
another time, so a law about host overhead is compared at the measured speed.
"""

from __future__ import annotations

import statistics

from boundby.model import Machine
from boundby.model.host_speed import addition_ns
from boundby.model.lab import Interval

_NOTICED = 1.15  # ratio from which the host's speed changed; assumed
_SAMPLES = 3  # samples of the host's speed


class HostSpeedSampler:
    """The time of one Python addition, sampled repeatedly between the measurements."""

    def __init__(self) -> None:
        self.samples_ns: list[float] = []

    def begin(self) -> None:
        self.samples_ns.clear()
        self.settle()

    def sample(self) -> None:
        self.samples_ns.append(addition_ns())

    def settle(self) -> None:
        """Sample before the first measurement and after the last: one sample may be disturbed."""
        for _ in range(_SAMPLES):
            self.sample()

    def relative_to(self, saved: Machine) -> Interval | None:
        """The host's slowdown since the machine was saved (the middle half of the samples); None if
        it is small."""
        saved_ns = saved.overheads.python_add_ns
        if not saved_ns or len(self.samples_ns) < 2:
            return None
        slowdown = self._spread().times(1 / saved_ns)
        return slowdown if slowdown.high > _NOTICED or slowdown.value < 1 / _NOTICED else None

    def words(self, saved: Machine) -> str | None:
        """One line, or None if the host's speed was that of the saved machine."""
        slowdown = self.relative_to(saved)
        if slowdown is None:
            return None
        took = self._spread()
        return (
            f"an addition in Python took {took.value:.0f} ns during the experiment ({took.low:.0f} "
            f"to {took.high:.0f}), and {saved.overheads.python_add_ns:.0f} when the machine "
            "was saved"
        )

    def _spread(self) -> Interval:
        """The middle half of the samples; values outside of it may be disturbances."""
        low, middle, high = statistics.quantiles(self.samples_ns, n=4, method="inclusive")
        return Interval(low=low, value=middle, high=high)
