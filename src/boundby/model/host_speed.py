"""The host's pace: how long a fixed piece of Python takes just now.

Cores that are shared with strangers run at two speeds or more, and change within seconds: 545 us or
1050 us were seen for the same 20,000 additions on one machine, whoever was pinned where. Beside a
figure that rests on the host, the pace says whether it was the figure that changed.
"""

from __future__ import annotations

import time

# Half a millisecond on a fast core: short beside what it accompanies, long for a clock.
ADDITIONS = 20_000
# Steps that their host set the time of, 26 of seven models on an H200, took as long as this power
# of an addition's time, from one hour to another: 24 to 50 ns, the middle of a minute or more each
# (70 of them, a slope of 0.69 that explains 82% of what they differ by).
_HOST_FOLLOWS = 0.7


def addition_ns(count: int = ADDITIONS) -> float:
    """The time of one addition of two floats in a plain loop of them."""
    total = 0.0
    began = time.perf_counter_ns()
    for _ in range(count):
        total += 1.5
    return (time.perf_counter_ns() - began) / count


def slower(now_ns: float, then_ns: float) -> float:
    """How many times as long a host takes for what it asks of a device as it did, by additions."""
    return float((now_ns / then_ns) ** _HOST_FOLLOWS)
