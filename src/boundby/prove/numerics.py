"""Whether a changed program computes the same results, by errors against a more precise reference.

All of this is arithmetic on values that were sampled from tensors; `checks.py` runs the program. A
change is judged by its distance from the reference, compared with that of the program itself.
Gradients are judged also by their slope, <g, reference> / <reference, reference>: a gradient that
is scaled by one percent is within bfloat16's error, but its slope is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.model.proof import Numerics

# Relative error of one result in each dtype. For float32 it is not the last bit: sums over
# thousands of terms in another order, through tens of layers, differ by a hundred of them.
UNITS = {"float64": 1e-12, "float32": 1e-5, "tf32": 2**-11, "float16": 2**-11, "bfloat16": 2**-8}
# Outputs and gradients accumulate the errors of all layers.
_VECTOR_UNITS = 8.0
# Two programs at equal distances from the reference may be on opposite sides of it.
_TOLERANCE_FACTOR = 2.0
# The slopes of correct changes were within 0.0034 of 1, those of planted errors 0.01 or more away.
_SLOPE = 0.006
# If rounding its weights changes a program's own results this much, a fix may change them as much.
_PERTURBED_FACTORS, _MAX_PERTURBED = 4.0, 0.25
# One update of an optimizer from equal gradients; bfloat16 weights lose a part of it to rounding.
UPDATE_TOLERANCE = {"float32": 2e-3, "float16": 0.1, "bfloat16": 0.2}
# If the spread between two seeds falls below this share of the spread before, the random draws are
# gone.
_MIN_SPREAD = 0.3
# Means over several seeds may differ by this many times their expected difference by chance.
_BY_CHANCE = 2.0
# And the scale of gradients this many standard errors.
_BY_CHANCE_OF_SCALE = 4.0

Vector = npt.NDArray[np.float64]
Values = Mapping[str, Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantityComparison:
    """One quantity: its error and the tolerance."""

    what: str
    error: float
    allowed: float
    by_chance: bool = False  # the tolerance is mostly that of random draws

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The results of one run of a module: samples of outputs, losses, buffers and gradients."""

    outputs: Values
    gradients: Values


def compare(
    base: Sampled,
    fixed: Sampled,
    reference: Sampled,
    *,
    unit: float,
    perturbed: Sampled | None = None,
    mode: str = "",
) -> Iterator[QuantityComparison]:
    """Compare the runs. `unit`: the relative error of one result in the dtype of the fix."""
    for name, truth in reference.outputs.items():
        yield _comparison(
            f"{name}{mode}",
            truth,
            base.outputs.get(name),
            fixed.outputs.get(name),
            unit,
            perturbed.outputs.get(name) if perturbed is not None else None,
        )
    if not reference.gradients:
        return
    names = list(reference.gradients)
    truth = np.concatenate([reference.gradients[name] for name in names])
    was = _joined(base.gradients, names)
    now = _joined(fixed.gradients, names)
    moved = _joined(perturbed.gradients, names) if perturbed is not None else None
    comparison = _comparison(f"gradients{mode}", truth, was, now, unit, moved)
    if not comparison.ok and was is not None and now is not None:
        # Name the parameter that explains most of the error.
        worst = max(
            names, key=lambda name: _relative_distance(reference.gradients, fixed.gradients, name)
        )
        comparison = QuantityComparison(
            what=f"gradient of {worst}{mode}", error=comparison.error, allowed=comparison.allowed
        )
    yield comparison
    if now is not None and was is not None:
        own_error = abs(slope(truth, was) - 1)
        allowed = _SLOPE + _TOLERANCE_FACTOR * own_error
        if moved is not None:
            allowed += min(_MAX_PERTURBED, _PERTURBED_FACTORS * abs(slope(was, moved) - 1))
        yield QuantityComparison(
            what=f"scale of the gradients{mode}", error=abs(slope(truth, now) - 1), allowed=allowed
        )


def compare_updates(
    before: Values, after: Values, tolerance: float
) -> Iterator[QuantityComparison]:
    """Compare an optimizer's update of each parameter from the same gradients."""
    names = list(before)
    was, now = _joined(before, names), _joined(after, names)
    if was is None or now is None:
        yield QuantityComparison(what="update of the optimizer", error=math.inf, allowed=tolerance)
        return
    yield QuantityComparison(
        what="update of the optimizer", error=distance(was, now), allowed=tolerance
    )
    yield QuantityComparison(
        what="scale of the optimizer's update",
        error=abs(slope(was, now) - 1),
        allowed=max(_SLOPE, tolerance / 4),
    )


def compare_draws(
    base: Sequence[Values], fixed: Sequence[Values], mode: str = ""
) -> Iterator[QuantityComparison]:
    """Compare random draws under several seeds: they must still exist, with the same mean."""
    for name in base[0]:
        was = [values[name] for values in base]
        now = [values.get(name, np.empty(0)) for values in fixed]
        if any(len(draw) != len(was[0]) for draw in now):
            yield QuantityComparison(what=f"shape of {name}{mode}", error=math.inf, allowed=0.0)
            continue
        spread, spread_now = _spread(was), _spread(now)
        # What does not depend on the draws differs by rounding at most.
        is_drawn = spread > UNITS["float32"]
        if is_drawn:
            lost = max(0.0, 1 - spread_now / spread)
            what = f"spread of {name}{mode} over random seeds"
            yield QuantityComparison(what=what, error=lost, allowed=1 - _MIN_SPREAD)
        by_chance = spread / math.sqrt(len(was))
        yield QuantityComparison(
            what=f"mean of {name}{mode} over random seeds",
            error=distance(np.mean(was, axis=0), np.mean(now, axis=0)),
            allowed=_BY_CHANCE * by_chance + UNITS["bfloat16"],
            by_chance=is_drawn,
        )


def compare_drawn_gradients(
    base: Sequence[Values], fixed: Sequence[Values]
) -> Iterator[QuantityComparison]:
    """Compare the scale of gradients under several seeds.

    By products of gradients of different seeds, whose expectation contains no noise. What the
    scale may be off by chance follows from how these products differ between seeds.
    """
    names = list(base[0])
    if not names:
        return
    what = "scale of the gradients over random seeds"
    rows = [[_joined(values, names) for values in runs] for runs in (base, fixed)]
    was, now = ([gradient for gradient in draws if gradient is not None] for draws in rows)
    if any(gradient is None or not np.isfinite(gradient).all() for gradient in rows[1]) or any(
        len(gradient) != len(was[0]) for gradient in now
    ):
        yield QuantityComparison(what=what, error=math.inf, allowed=_SLOPE)
        return
    count = len(was)
    within = np.stack(was) @ np.stack(was).T
    by_seed = (within.sum(axis=1) - within.diagonal()) / (count - 1)
    across = (np.stack(now) @ np.stack(was).T).mean(axis=1)
    signal = float(by_seed.mean())
    by_chance = math.sqrt((by_seed.var(ddof=1) + across.var(ddof=1)) / count)
    if signal > _BY_CHANCE * by_chance:
        yield QuantityComparison(
            what=what,
            error=abs(float(across.mean()) / signal - 1),
            allowed=_SLOPE + _BY_CHANCE_OF_SCALE * by_chance / signal,
            by_chance=True,
        )


def verdict(compared: Sequence[QuantityComparison], skipped: Sequence[str]) -> Numerics:
    """The comparison that is closest to its tolerance, or beyond it, decides."""
    left_out = f"; not compared: {', '.join(dict.fromkeys(skipped))}" if skipped else ""
    if not compared:
        why = "nothing could be compared" + left_out.replace("; not compared", "", 1)
        return Numerics(ok=False, verified=False, why=why)
    worst = max(compared, key=lambda one: one.error / max(one.allowed, 1e-15))
    relation = "within" if worst.ok else "off by"
    words = f"{worst.what} {relation} {_percent(worst.error)} ({_percent(worst.allowed)} allowed)"
    if worst.by_chance:
        share = worst.error / worst.allowed
        words = f"{worst.what} differs by {share:.0%} of the difference that random draws explain"
    return Numerics(
        ok=worst.ok,
        why=words + left_out,
        tensor=worst.what,
        error=worst.error if math.isfinite(worst.error) else None,
        tolerance=worst.allowed,
    )


def _comparison(
    what: str,
    truth: Vector,
    was: Vector | None,
    now: Vector | None,
    unit: float,
    perturbed: Vector | None,
) -> QuantityComparison:
    if was is None:
        return QuantityComparison(what=what, error=0.0, allowed=0.0)
    if now is None or len(now) != len(truth):
        return QuantityComparison(what=f"shape of {what}", error=math.inf, allowed=0.0)
    allowed = _TOLERANCE_FACTOR * distance(truth, was) + _VECTOR_UNITS * unit
    if perturbed is not None and len(perturbed) == len(was):
        allowed += min(_MAX_PERTURBED, _PERTURBED_FACTORS * distance(was, perturbed))
    return QuantityComparison(what=what, error=distance(truth, now), allowed=allowed)


def distance(truth: Vector, value: Vector) -> float:
    """The distance of two vectors relative to the length of the first; infinite if only one is
    finite."""
    finite = np.isfinite(truth)
    if not np.array_equal(finite, np.isfinite(value)):
        return math.inf
    apart = float(np.linalg.norm(truth[finite] - value[finite]))
    length = float(np.linalg.norm(truth[finite]))
    return apart / length if length else (0.0 if apart == 0 else math.inf)


def slope(truth: Vector, value: Vector) -> float:
    """The least-squares factor between `value` and `truth`."""
    both = np.isfinite(truth) & np.isfinite(value)
    squared_length = float(truth[both] @ truth[both])
    return float(truth[both] @ value[both]) / squared_length if squared_length else 1.0


def _joined(values: Values, names: Sequence[str]) -> Vector | None:
    if any(name not in values for name in names):
        return None
    return np.concatenate([values[name] for name in names]) if names else np.empty(0)


def _relative_distance(reference: Values, fixed: Values, name: str) -> float:
    truth, now = reference[name], fixed.get(name)
    if now is None or len(truth) != len(now):
        return math.inf
    return float(np.nan_to_num(np.linalg.norm(truth - now), nan=math.inf))


def _spread(draws: Sequence[Vector]) -> float:
    """The average difference of two draws, relative to the length of the mean."""
    middle = np.mean(draws, axis=0)
    length = float(np.linalg.norm(middle)) or 1.0
    around = sum(float(np.sum((draw - middle) ** 2)) for draw in draws) / (len(draws) - 1)
    return math.sqrt(2 * around) / length


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "everything"
    if 0 < share < 1e-9:
        return "less than 0.001 ppm"
    return f"{share:.2%}" if share >= 1e-4 else f"{share * 1e6:.2g} ppm"
