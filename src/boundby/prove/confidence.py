"""The speed-up with its confidence interval, which is valid after every round.

A ratio of a round is the logarithm of the time of a block without a change over that of a block
with it. The interval is the intersection of two confidence sequences, so that measuring may stop
as soon as it decides. Both contain the true ratio in all rounds with 95%, if rounds are alike:

- The t-mixture sequence of the mean. It decides after three rounds on a quiet machine. It assumes
  normally distributed rounds: a few rounds that were disturbed keep it wide for very many more.
- The sequence of the median, from how many rounds lie above a value: by a mixture of coin biases
  (Jeffreys' prior). It needs eleven rounds, and disturbed rounds widen it little.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from boundby.model.proof import Speedup

MIN_ROUNDS = 3  # for an estimate of the spread
# Of both sides, together 5%: 95% intervals. Below 3.3%, three rounds would have no interval of the
# mean.
_MEAN_ALPHA, _MEDIAN_ALPHA = 0.045, 0.005
# Variance of the prior on the effect, in units of the rounds' own variance.
_PRIOR = 10.0
# Rounds that agree better than the clock's resolution show no more than this.
_MIN_SD = 0.002
_LARGEST = 20.0  # of a logarithm
# A fix is kept above the first speed-up, and rejected below the second.
WORTHWHILE, NO_EFFECT = 1.01, 1.02


def speedup_of(log_ratios: Sequence[float]) -> Speedup | None:
    """The median ratio with its interval; None for too few rounds."""
    count = len(log_ratios)
    if count < MIN_ROUNDS:
        return None
    mean = statistics.fmean(log_ratios)
    half = half_width(count) * max(statistics.stdev(log_ratios), _MIN_SD)
    low, high = mean - half, mean + half
    least, most = median_bounds(log_ratios)
    if max(low, least) <= min(high, most):
        low, high = max(low, least), min(high, most)
    middle = min(max(statistics.median(log_ratios), low), high)
    return Speedup(low=math.exp(low), median=math.exp(middle), high=math.exp(min(high, _LARGEST)))


def product_of(speedups: Sequence[Speedup]) -> Speedup | None:
    """The product of speed-ups measured one after the other, with independent errors."""
    if not speedups:
        return None
    middle = sum(math.log(speedup.median) for speedup in speedups)
    below = math.hypot(*(math.log(speedup.median / speedup.low) for speedup in speedups))
    above = math.hypot(*(math.log(speedup.high / speedup.median) for speedup in speedups))
    return Speedup(
        low=math.exp(middle - below), median=math.exp(middle), high=math.exp(middle + above)
    )


def half_width(count: int) -> float:
    """The half-width of the mean's interval, in standard deviations of a round; infinite below
    three rounds."""
    spread = 1 + count * _PRIOR
    limit = (math.sqrt(spread) / _MEAN_ALPHA) ** (2 / count)
    if limit >= spread:
        return math.inf
    t_squared = (count - 1) * (limit - 1) / (1 - limit / spread)
    return math.sqrt(t_squared / count)


def median_bounds(values: Sequence[float]) -> tuple[float, float]:
    """The interval of the median; infinite while too few values are known."""
    ordered = sorted(values)
    count = len(ordered)
    # Values below the median that are so few, of all, that it is not above them by chance.
    few = [below for below in range(count // 2) if _is_unlikely(below, count)]
    if not few:
        return -math.inf, math.inf
    return ordered[few[-1]], ordered[count - 1 - few[-1]]


def _is_unlikely(below: int, count: int) -> bool:
    """Whether a fair coin rules out this few heads: 2^n B(k + 1/2, n - k + 1/2) / B(1/2, 1/2)."""
    log_ratio = (
        count * math.log(2)
        + math.lgamma(below + 0.5)
        + math.lgamma(count - below + 0.5)
        - math.lgamma(count + 1)
        - math.log(math.pi)
    )
    return log_ratio >= -math.log(_MEDIAN_ALPHA)
