"""The host's speed: how long a fixed piece of Python takes now.

Shared cores run at two or more speeds and change within seconds: the same 20,000 additions took 545
us or 1050 us on one machine, whatever the pinning. Next to a figure that depends on the host, this
shows whether the host or the figure changed.
"""

from __future__ import annotations

import time

from boundby.model.assumptions.host import HOST_SPEED_EXPONENT

# Half a millisecond on a fast core: short compared with a step, long compared with the clock.
ADDITIONS = 20_000


def addition_ns(count: int = ADDITIONS) -> float:
    """Return the time of one float addition in a plain loop."""
    total = 0.0
    began = time.perf_counter_ns()
    for _ in range(count):
        total += 1.5
    return (time.perf_counter_ns() - began) / count


def slower(now_ns: float, then_ns: float) -> float:
    """Return the slowdown of host-bound work, from the addition time now and then."""
    return float((now_ns / then_ns) ** HOST_SPEED_EXPONENT.value)
