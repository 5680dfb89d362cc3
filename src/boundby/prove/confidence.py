"""The speed-up with its confidence interval, which is valid after every round.

A ratio of a round is the logarithm of the time of a block without a change over that of a block
with it. The interval is the t-mixture confidence sequence: it contains the true mean in all rounds
together with 95%, so that measuring may stop as soon as it decides. It assumes equal, normally
distributed rounds; on recorded steps of quiet and noisy hosts it was wrong in 1% of cases or less
(5% are allowed), because it is wide for few rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from boundby.model.proof import Speedup

MIN_ROUNDS = 3  # for an estimate of the spread
_ALPHA = 0.05  # of both sides: 95% intervals
# Variance of the prior on the effect, in units of the rounds' own variance.
_PRIOR = 10.0
# Rounds that agree better than the clock's resolution show no more than this.
_MIN_SD = 0.002
# A fix is kept above the first speed-up, and rejected below the second.
WORTHWHILE, NO_EFFECT = 1.01, 1.02


def speedup_of(log_ratios: Sequence[float]) -> Speedup | None:
    """The mean ratio with its interval; None for too few rounds."""
    count = len(log_ratios)
    if count < MIN_ROUNDS:
        return None
    middle = statistics.fmean(log_ratios)
    half = half_width(count) * max(statistics.stdev(log_ratios), _MIN_SD)
    return Speedup(
        low=math.exp(middle - half), median=math.exp(middle), high=math.exp(min(middle + half, 20))
    )


def half_width(count: int) -> float:
    """The half-width of the interval, in standard deviations of a round; infinite below three
    rounds."""
    spread = 1 + count * _PRIOR
    limit = (math.sqrt(spread) / _ALPHA) ** (2 / count)
    if limit >= spread:
        return math.inf
    t_squared = (count - 1) * (limit - 1) / (1 - limit / spread)
    return math.sqrt(t_squared / count)
