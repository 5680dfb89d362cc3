"""Whether a changed program computes what it did: errors against a finer reference.

All of this is arithmetic on values that were sampled from tensors; `checks.py` runs the program.
A change is judged by how far it is from the reference, next to how far the program itself is.
Gradients are judged also by their slope, <g, reference> / <reference, reference>: a gradient that
is scaled by a percent lies within bfloat16's error, and its slope does not.
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
# Outputs and gradients gather the errors of all layers.
_VECTOR_UNITS = 8.0
# Two programs that are equally far from the reference may be so on opposite sides.
_TOLERANCE_FACTOR = 2.0
# Right changes were within 0.0034 of 1 in the slope, planted ones 0.01 and more off it.
_SLOPE = 0.006
# A program whose own results move this much when its weights are rounded may move as much again.
_PERTURBED_FACTORS, _MAX_PERTURBED = 4.0, 0.25
# One update of an optimizer from equal gradients; bfloat16 weights swallow a part of it.
UPDATE_TOLERANCE = {"float32": 2e-3, "float16": 0.1, "bfloat16": 0.2}
# Random draws: so much less spread between two seeds than before means that they are gone.
_MIN_SPREAD = 0.3
# And means over several seeds may be apart by so many times what they are apart by chance.
_BY_CHANCE = 2.0

Vector = npt.NDArray[np.float64]
Values = Mapping[str, Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantityComparison:
    """One quantity: how far it is off, and what is allowed."""

    what: str
    error: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What one run of a module gave: samples of outputs, losses, buffers and gradients."""

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
    """`unit`: the relative error of one result in the dtype that the fix computes in."""
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
    found = _comparison(f"gradients{mode}", truth, was, now, unit, moved)
    if not found.ok and was is not None and now is not None:
        # Name the parameter that explains most of it.
        worst = max(
            names, key=lambda name: _relative_distance(reference.gradients, fixed.gradients, name)
        )
        found = QuantityComparison(
            what=f"gradient of {worst}{mode}", error=found.error, allowed=found.allowed
        )
    yield found
    if now is not None and was is not None:
        own = abs(slope(truth, was) - 1)
        allowed = _SLOPE + _TOLERANCE_FACTOR * own
        if moved is not None:
            allowed += min(_MAX_PERTURBED, _PERTURBED_FACTORS * abs(slope(was, moved) - 1))
        yield QuantityComparison(
            what=f"scale of the gradients{mode}", error=abs(slope(truth, now) - 1), allowed=allowed
        )


def compare_updates(
    before: Values, after: Values, tolerance: float
) -> Iterator[QuantityComparison]:
    """An optimizer's update of each parameter from the same gradients."""
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


def compare_draws(base: Sequence[Values], fixed: Sequence[Values]) -> Iterator[QuantityComparison]:
    """Random draws under several seeds: that they are still there, and mean the same."""
    for name in base[0]:
        was = [one[name] for one in base]
        now = [one.get(name, np.empty(0)) for one in fixed]
        if any(len(one) != len(was[0]) for one in now):
            yield QuantityComparison(what=f"shape of {name}", error=math.inf, allowed=0.0)
            continue
        spread, spread_now = _spread(was), _spread(now)
        if spread > 0:
            lost = max(0.0, 1 - spread_now / spread)
            what = f"spread of {name} over random seeds"
            yield QuantityComparison(what=what, error=lost, allowed=1 - _MIN_SPREAD)
        by_chance = spread / math.sqrt(len(was))
        yield QuantityComparison(
            what=f"mean of {name} over random seeds",
            error=distance(np.mean(was, axis=0), np.mean(now, axis=0)),
            allowed=_BY_CHANCE * by_chance + UNITS["bfloat16"],
        )


def verdict(compared: Sequence[QuantityComparison], skipped: Sequence[str]) -> Numerics:
    """The comparison that is closest to its tolerance, or beyond it, stands for all."""
    left_out = f"; not compared: {', '.join(dict.fromkeys(skipped))}" if skipped else ""
    if not compared:
        why = "nothing could be compared" + left_out.replace("; not compared", "", 1)
        return Numerics(ok=False, verified=False, why=why)
    worst = max(compared, key=lambda one: one.error / max(one.allowed, 1e-15))
    relation = "within" if worst.ok else "off by"
    words = f"{worst.what} {relation} {_percent(worst.error)} ({_percent(worst.allowed)} allowed)"
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
    """Of two vectors, as a share of the first one's length; infinite where only one is finite."""
    finite = np.isfinite(truth)
    if not np.array_equal(finite, np.isfinite(value)):
        return math.inf
    apart = float(np.linalg.norm(truth[finite] - value[finite]))
    length = float(np.linalg.norm(truth[finite]))
    return apart / length if length else (0.0 if apart == 0 else math.inf)


def slope(truth: Vector, value: Vector) -> float:
    """The factor by which `value` is `truth`, in the sense of least squares."""
    both = np.isfinite(truth) & np.isfinite(value)
    own = float(truth[both] @ truth[both])
    return float(truth[both] @ value[both]) / own if own else 1.0


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
    """How far two draws are apart, on average, as a share of the mean's length."""
    middle = np.mean(draws, axis=0)
    length = float(np.linalg.norm(middle)) or 1.0
    around = sum(float(np.sum((one - middle) ** 2)) for one in draws) / (len(draws) - 1)
    return math.sqrt(2 * around) / length


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "everything"
    return f"{share:.2%}" if share >= 1e-4 else f"{share * 1e6:.2g} ppm"
