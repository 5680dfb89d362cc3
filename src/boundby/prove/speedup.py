"""How much faster, and how sure that is: the process is the unit, not the step.

Fresh processes of one script differ by several percent on one machine, and no number of steps in
one of them tells. So the interval comes from drawing whole processes anew: their differences from
their own group, pooled over all groups of the experiment, together with what processes are known
to differ by before any were seen.

A machine that is shared is slower for minutes: then a process differs less from a baseline that ran
before or after it than from the others, and what counts is how much those pairs differ.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

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
# Pairs must be this many more than the fixes they are of, to tell how much they differ; and few of
# them agree by chance. So many times as wide, intervals were wrong in 0% to 11% of simulated
# experiments, with a drift and without.
_FEWEST_PAIRS_MORE = 3
_FEW_PAIRS = 1.2
# Of what any two processes differ by: pairs that differ by more do so without a drift too.
_PLAINLY_LESS = 0.75
_DRAWS = 1000
_CONFIDENCE = 0.95
_SEED = 20_240_601


class Turn(NamedTuple):
    """A process, of those that ran one after the other; without a fix it is a baseline."""

    fix: Hashable | None
    steps: Sequence[float]


def scatter(groups: Iterable[Samples]) -> Floats:
    """By how much processes differ from the middle of their group, in logarithms."""
    groups = [group for group in groups if group]
    prior = _prior([steps for group in groups for steps in group])
    return np.concatenate([prior, *(_apart(_logs(group)) for group in groups)])


def _prior(processes: Samples) -> Floats:
    shortest = min((statistics.median(steps) for steps in processes), default=None)
    found: Floats = (PRIOR + (PRIOR_NS / shortest if shortest else 0.0)) * _PRIOR_SHAPE
    return found


def _apart(logs: Floats) -> Floats:
    """Differences from their own mean, which are too small by a factor; none of one alone."""
    if len(logs) < 2:
        return np.empty(0)
    found: Floats = (logs - logs.mean()) * np.sqrt(len(logs) / (len(logs) - 1))
    return found


def in_pairs(turns: Sequence[Turn], fix: Hashable, spread: Floats) -> tuple[Speedup, float] | None:
    """The speed-up beside the nearest baselines, and by how much processes differ from those.

    None where there are too few pairs to tell, or where they differ about as any two processes do.
    """
    # In their order: what is drawn from them is to be the same each time.
    fixes = dict.fromkeys(turn.fix for turn in turns if turn.fix is not None)
    pairs = {one: _pairs(turns, one) for one in fixes}
    pairs = {one: found for one, found in pairs.items() if len(found[0])}
    if fix not in pairs or sum(len(logs) - 1 for logs, _ in pairs.values()) < _FEWEST_PAIRS_MORE:
        return None
    prior = np.sqrt(2) * _prior([turn.steps for turn in turns])
    apart = np.concatenate([prior, *(_apart(logs) for logs, _ in pairs.values())])
    if apart.std() >= _PLAINLY_LESS * np.sqrt(2) * spread.std():
        return None
    logs, baselines = pairs[fix]
    generator = np.random.default_rng(_SEED)
    # Two that share a baseline are not two pairs.
    drawn = generator.choice(apart, size=(_DRAWS, min(len(logs), baselines)))
    error = _FEW_PAIRS * np.median(drawn, axis=1)
    return _around(float(np.median(logs)), error), float(apart.std() / np.sqrt(2))


def _pairs(turns: Sequence[Turn], fix: Hashable) -> tuple[Floats, int]:
    """How much faster each of a fix's processes was than the baselines before and after it, in
    logarithms; and how many baselines those were."""
    logs = _logs([turn.steps for turn in turns])
    baselines = np.array([at for at, turn in enumerate(turns) if turn.fix is None], np.int64)
    found, met = [], set()
    for at in (at for at, turn in enumerate(turns) if turn.fix == fix):
        place = int(np.searchsorted(baselines, at))
        near = baselines[max(0, place - 1) : place + 1]
        if len(near):
            met.update(near.tolist())
            found.append(logs[near].mean() - logs[at])
    return np.array(found), len(met)


def estimate(before: Samples, after: Samples, spread: Floats) -> Speedup:
    """The ratio of medians over processes, with its bootstrap interval."""
    first, second = _logs(before), _logs(after)
    middle = float(np.median(first) - np.median(second))
    generator = np.random.default_rng(_SEED)
    return _around(middle, _errors(generator, before, spread) - _errors(generator, after, spread))


def _around(middle: float, error: Floats) -> Speedup:
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
