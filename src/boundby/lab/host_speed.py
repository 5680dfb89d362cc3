"""The host's speed during an experiment, compared with its speed when the machine was saved.

Issuing work takes host time. On a host with shared cores the same call can take twice as long at
another time, so a law about host overhead is judged at the speed that was measured.
"""

from __future__ import annotations

import statistics

from boundby.model import Machine
from boundby.model.host_speed import addition_ns
from boundby.model.lab import Interval

_NOTICED = 1.15  # ratio from which the host's speed changed; assumed
_LOOKS = 3  # samples of the host's speed


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
        for _ in range(_LOOKS):
            self.sample()

    def relative_to(self, saved: Machine) -> Interval | None:
        """The middle half as a multiple of the saved one; None if it equals the saved one."""
        once = saved.overheads.python_add_ns
        if not once or len(self.samples_ns) < 2:
            return None
        seen = self._spread().times(1 / once)
        return seen if seen.high > _NOTICED or seen.value < 1 / _NOTICED else None

    def words(self, saved: Machine) -> str | None:
        """One line, or None if the host's speed was that of the saved machine."""
        seen = self.relative_to(saved)
        if seen is None:
            return None
        took = self._spread()
        return (
            f"an addition in Python took the host {took.value:.0f} ns meanwhile ({took.low:.0f} to "
            f"{took.high:.0f}), {saved.overheads.python_add_ns:.0f} when the machine was saved"
        )

    def _spread(self) -> Interval:
        """The middle half: rarer values do not affect a median, and may be disturbances."""
        low, middle, high = statistics.quantiles(self.samples_ns, n=4, method="inclusive")
        return Interval(low=low, value=middle, high=high)
