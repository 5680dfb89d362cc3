"""A median and how well it is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_DRAWS = 4000
_TAILS = [0.025, 0.975]


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The low end, the median and the high end, with 95% between the ends.

    By drawing anew: blocks of neighbours, as many as there are values in all, since what disturbs
    one measurement often disturbs the next.
    """
    taken = np.asarray(values, dtype=float)
    count = len(taken)
    block = max(1, round(count ** (1 / 3)))
    blocks = -(-count // block)
    starts = np.random.default_rng(0).integers(count, size=(_DRAWS, blocks, 1))
    picks = ((starts + np.arange(block)) % count).reshape(_DRAWS, -1)[:, :count]
    low, high = np.quantile(np.median(taken[picks], axis=1), _TAILS)
    return float(low), float(np.median(taken)), float(high)
