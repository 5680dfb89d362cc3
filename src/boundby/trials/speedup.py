"""How much faster, and how sure that is: the process is the unit, not the step.

Fresh processes of one script differ by several percent on one machine, and no number of steps in
one of them tells. So the interval comes from drawing whole processes anew: their differences from
their own group, pooled over all groups of the experiment, together with what processes are known
to differ by before any were seen.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from boundby.model.diagnosis import Speedup

Floats = npt.NDArray[np.float64]
Samples = Sequence[Sequence[float]]  # step times by process

# Standard deviation between processes of one script: 10% from lowest to highest was seen among a
# dozen of them, which is three standard deviations. Steps of a fraction of a millisecond are at the
# scheduler's mercy: on a busy host their medians differed by a factor of two.
PRIOR = 0.03
PRIOR_NS = 100_000.0
# As normal quantiles of unit variance: these many processes' worth of belief.
_PRIOR_SHAPE = np.array([-1.0, 0.0, 1.0]) * np.sqrt(1.5)
_DRAWS = 1000
_CONFIDENCE = 0.95
_SEED = 20_240_601


def scatter(groups: Iterable[Samples]) -> Floats:
    """By how much processes differ from the middle of their group, in logarithms."""
    groups = [group for group in groups if group]
    shortest = min((statistics.median(steps) for group in groups for steps in group), default=None)
    found = [(PRIOR + (PRIOR_NS / shortest if shortest else 0.0)) * _PRIOR_SHAPE]
    for group in groups:
        logs = _logs(group)
        if len(logs) > 1:
            # Differences from their own mean are too small by this factor.
            found.append((logs - logs.mean()) * np.sqrt(len(logs) / (len(logs) - 1)))
    return np.concatenate(found)


def estimate(before: Samples, after: Samples, spread: Floats) -> Speedup:
    """The ratio of medians over processes, with its bootstrap interval."""
    first, second = _logs(before), _logs(after)
    middle = float(np.median(first) - np.median(second))
    generator = np.random.default_rng(_SEED)
    error = _errors(generator, before, spread) - _errors(generator, after, spread)
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(error, [tail, 1 - tail])
    return Speedup(
        low=float(np.exp(middle + low)),
        median=float(np.exp(middle)),
        high=float(np.exp(middle + high)),
    )


def half_width(speedup: Speedup) -> float:
    """How far the interval reaches, as a share of the speed-up."""
    return (speedup.high - speedup.low) / (2 * speedup.median)


def _logs(group: Samples) -> Floats:
    return np.log([statistics.median(steps) for steps in group])


def _errors(generator: np.random.Generator, group: Samples, spread: Floats) -> Floats:
    """What the median over processes may be off by, drawn many times: processes, then steps."""
    processes = generator.choice(spread, size=(_DRAWS, len(group)))
    within = np.stack([_errors_of_steps(generator, steps) for steps in group], axis=1)
    errors: Floats = np.median(processes + within, axis=1)
    return errors


def _errors_of_steps(generator: np.random.Generator, steps: Sequence[float]) -> Floats:
    logs = np.log(steps)
    drawn = generator.choice(logs, size=(_DRAWS, len(logs)))
    errors: Floats = np.median(drawn, axis=1) - np.median(logs)
    return errors
