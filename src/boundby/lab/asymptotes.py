"""Two asymptotes of a measured curve and their crossing point.

The ridge of a roofline cannot be measured as a point: near it the time is a little above both
lines. The crossing point of the lines can be measured: a flat line through the first points of the
curve and a power law through the last.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from boundby.model.lab import Interval

_ENDS = 3  # points at either end


def flat(times: Sequence[Interval], *, points: int = _ENDS) -> Interval:
    """The level of the first points, where the time does not depend on the size."""
    return middle(times[:points])


def slope(
    sizes: Sequence[float], times: Sequence[Interval], *, power: int = 1, points: int = _ENDS
) -> Interval:
    """Time per size to a power, from the last points."""
    ends = zip(sizes[-points:], times[-points:], strict=True)
    return middle([time.times(1 / size**power) for size, time in ends])


def crossing(level: Interval, rise: Interval, *, power: int = 1) -> Interval:
    """The size at which the rising line reaches the flat one."""
    ratio = level.over(rise)
    return Interval(
        low=ratio.low ** (1 / power),
        value=ratio.value ** (1 / power),
        high=ratio.high ** (1 / power),
    )


def middle(intervals: Sequence[Interval]) -> Interval:
    """The median, from the median of the lows to that of the highs."""
    return Interval(
        low=statistics.median(each.low for each in intervals),
        value=statistics.median(each.value for each in intervals),
        high=statistics.median(each.high for each in intervals),
    )


def points_of(
    sizes: Sequence[float], times: Sequence[Interval], work: float = 0.0, *, power: int = 0
) -> list[tuple[float, float]]:
    """Points to plot: time over size, or, with `work` per size, a rate per second."""
    if not work:
        return [(size, time.value) for size, time in zip(sizes, times, strict=True)]
    return [
        (size, work * size**power / time.value * 1e9)
        for size, time in zip(sizes, times, strict=True)
    ]
