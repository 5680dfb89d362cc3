"""The share of the steps' time in irregular pauses."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

Shares = tuple[float, float, float]


def shares(pauses_ns: Sequence[float], steps_ns: Sequence[float]) -> Shares:
    """The share in the median step, in all steps but the worst, and in all: low, expected, high.

    A pause in one step of ten may be chance, so it counts for `high` only. The shown step is the
    median one, which contains none, so only shares are returned.
    """
    if not pauses_ns or len(pauses_ns) != len(steps_ns):
        return 0.0, 0.0, 0.0
    every = _share(sum(pauses_ns), sum(steps_ns))
    if len(pauses_ns) == 1:
        return every, every, every
    worst = max(range(len(pauses_ns)), key=lambda step: pauses_ns[step])
    recurring = _share(sum(pauses_ns) - pauses_ns[worst], sum(steps_ns) - steps_ns[worst])
    typical = _share(statistics.median(pauses_ns), statistics.median(steps_ns))
    return min(typical, recurring), recurring, max(recurring, every)


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 0.0
