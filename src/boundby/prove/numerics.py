"""Whether a changed program still computes what it did.

Two questions. With dropout off, on the same weights and data: is it further from float32 than the
program was before, beyond what the fix's precision explains? And with dropout: do the first losses
lie where the program's own lie under other dropout seeds?
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boundby.model.diagnosis import Numerics
from boundby.prove.numerics_recorder import EXACT_STEPS, NUDGES
from boundby.prove.trial_result import Call, Input, Notes

# Relative error of one result in each dtype. For float32 it is not the last bit: sums over
# thousands of terms in another order, through tens of layers, differ by a hundred of them.
_UNIT = {"float64": 1e-12, "float32": 1e-5, "tf32": 2**-11, "float16": 2**-11, "bfloat16": 2**-8}
# Outputs and gradients gather the errors of all layers, a mean loss averages them out.
_VECTOR_UNITS = 8.0
_SCALAR_UNITS = 2.0
# Two programs that are equally far from float32 may be so on opposite sides.
_AS_FAR = 2.0
# Losses drift apart faster than steps add up. Nudged runs of the baseline show how fast. What the
# furthest of one, two or three of them came to, normally distributed, is exceeded so many times by
# another in 2%, 1% and 1% of all cases. Without them: tenfold at every step, as was seen with
# batch norms and a high learning rate.
_AS_NUDGED = (30.0, 8.0, 4.0)
_MOST_BESIDE_NUDGES = 10.0
_DRIFT = 10.0
# However fast it drifts, more than this is another program.
_MOST_DRIFT = 0.10
_MOST_VECTOR_DRIFT = 0.25
# Losses that may be off by so much without anybody's fault hide what a fix may do to them.
_HARDLY_TELLS = 0.05
# Student's t, two-sided 99%, by how many seeds were seen beside the first: three of them show
# only a part of what dropout can do, and a fix must not be refused for drawing other numbers.
_STUDENT = (9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36)
FEWEST_SEEDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One quantity: how far it was off before, how far it is now, what is allowed."""

    what: str
    error: float
    allowed: float

    nudged: bool = False  # a loss of which rounding alone was seen to move it

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed


def find_verdict(
    before: Sequence[Notes],
    after: Sequence[Notes],
    reference: Notes | None,
    precision: str | None,
) -> Numerics:
    """`before` holds the baseline under several dropout seeds, the first of them stands for all."""
    after = [notes for notes in after if notes.exact]
    if not before or not after:
        return Numerics(ok=False, why="nothing to compare")
    base, fixed = before[0], after[0]
    if not _same_data(base, fixed):
        return _by_scatter(before, after)
    compared = [] if base.draws_exact else list(_exact(before, fixed, reference, precision))
    worst = max(compared, key=lambda one: one.error / max(one.allowed, 1e-12), default=None)
    off = " with dropout off" if base.has_dropout else ""
    if worst is not None and not worst.ok:
        words = (
            f"{worst.what} off by {_percent(worst.error)}{off}, "
            f"{_percent(worst.allowed)} is explained"
        )
        return Numerics(ok=False, why=words)
    seeded = _seeded(before, after, precision)
    if seeded is not None and not seeded.ok:
        words = (
            f"losses off by {_percent(seeded.error)}, "
            f"{_percent(seeded.allowed)} is within the spread of {len(before)} dropout seeds"
        )
        return Numerics(ok=False, why=words)
    if worst is None and seeded is None:
        return Numerics(ok=False, why="neither a loss nor an output could be compared")
    words = _fine(worst, off, seeded, len(before)) + _hardly_tells(compared)
    return Numerics(ok=True, why=words)


def _hardly_tells(compared: Sequence[Compared]) -> str:
    """A word where rounding alone moves losses so far that little could be told from them."""
    loosest = max((one.allowed for one in compared if one.nudged), default=0.0)
    if loosest < _HARDLY_TELLS:
        return ""
    return (
        f"; but rounding alone moves this script's losses so far that {_percent(loosest)} had to "
        "be allowed: a fix that harms training by less goes unseen here"
    )


def _fine(worst: Compared | None, off: str, seeded: Compared | None, seeds: int) -> str:
    words = []
    if worst is not None:
        words.append(
            f"{worst.what} within {_percent(worst.error)}{off} ({_percent(worst.allowed)} allowed)"
        )
    if seeded is not None:
        words.append(f"losses within the spread of {seeds} dropout seeds")
    return ", ".join(words)


def _exact(
    before: Sequence[Notes], fixed: Notes, reference: Notes | None, precision: str | None
) -> Iterator[Compared]:
    """Losses, gradients and outputs of the steps without dropout."""
    base, nudged = before[0], before[1:]
    own = base.precision if base.precision in _UNIT else "bfloat16" if base.precision else "float32"
    now = precision or "float32"
    # A nudge was of the program's own rounding errors; a coarser fix makes larger ones.
    coarser = max(1.0, NUDGES[now] / NUDGES[own])
    # Of the steps after the first, which is held to what explains it.
    later = max(coarser, _beside_nudges(base, fixed, nudged))
    unit = _UNIT[now]
    is_finer = reference is not None and reference.precision != base.precision
    if reference is None or not (_same_data(base, reference) and (is_finer or own == "float32")):
        # Nothing better than the program itself to compare with: both err.
        reference, unit = base, max(unit, _UNIT[own])
    steps = EXACT_STEPS if base.has_dropout else None
    losses = [_flat(notes.losses[:steps]) for notes in (reference, base, fixed)]
    drifts = _drifts(losses[1], [_flat(notes.losses[:steps]) for notes in nudged])
    scalar = _SCALAR_UNITS * max(_UNIT[now], _UNIT[own])
    off = 0.0
    for index, (wanted, was, value) in enumerate(zip(*losses, strict=False)):
        off = max(off, _relative(wanted, was))
        grows = later if index else coarser
        drift = drifts[index] * grows if drifts else scalar * (_DRIFT**index - 1)
        yield Compared(
            what=f"loss of step {index + 1}",
            error=_relative(wanted, value),
            allowed=_AS_FAR * off + scalar + min(drift, _MOST_DRIFT),
            nudged=bool(drifts),
        )
    for vector in _vectors(reference, base, fixed, nudged, has_losses=bool(losses[0])):
        yield Compared(
            what=vector.what,
            error=_distance(vector.truth, vector.now),
            allowed=_AS_FAR * _distance(vector.truth, vector.before)
            + _VECTOR_UNITS * unit
            + _vector_drift(vector, later if vector.updates else coarser, _VECTOR_UNITS * unit),
        )


def _beside_nudges(base: Notes, fixed: Notes, nudged: Sequence[Notes]) -> float:
    """How many times as far as nudged ones the first gradients are: sums in another order move them
    more than a last bit does, and what grows from there grows from that."""
    size = len(base.gradients)
    nudges = [
        _distance(base.gradients, one.gradients) for one in nudged if len(one.gradients) == size
    ]
    if not size or len(fixed.gradients) != size or not max(nudges, default=0.0):
        return 1.0
    return min(_MOST_BESIDE_NUDGES, _distance(base.gradients, fixed.gradients) / max(nudges))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vector:
    what: str
    truth: list[float]
    before: list[float]
    now: list[float]
    nudged: list[list[float]]
    updates: int  # of the weights before it


def _vector_drift(vector: _Vector, coarser: float, explained: float) -> float:
    """How far it may be off beyond what explains the first step's."""
    if vector.updates and not vector.nudged:
        # No yardstick: behind batch norms 3% were seen in the third step, 0.01% in the first.
        return _MOST_VECTOR_DRIFT
    nudges = max((_distance(vector.before, one) for one in vector.nudged), default=0.0)
    # Two nudges do not show all that becomes of gradients next to nothing: Adam follows signs.
    drift = max(
        _beyond(len(vector.nudged)) * coarser * nudges, explained * (_DRIFT**vector.updates - 1)
    )
    return min(drift, _MOST_VECTOR_DRIFT)


def _vectors(
    reference: Notes, base: Notes, fixed: Notes, nudged: Sequence[Notes], *, has_losses: bool
) -> Iterator[_Vector]:
    """Gradients of the first step and outputs of its calls; without losses, of later calls too.

    And gradients of the last step without dropout: what was captured is replayed by then.
    """
    every = (reference, base, fixed, *nudged)
    last = f"gradients of step {EXACT_STEPS}"
    sets = [
        ("gradients", [notes.gradients for notes in every]),
        (last, [notes.later_gradients for notes in every]),
    ]
    for index, call in enumerate(base.calls):
        # Later outputs hold the updates too: the losses answer for those.
        if call.step > 0 and has_losses:
            break
        calls = [
            notes.calls[index]
            for notes in every
            if index < len(notes.calls) and _same_inputs(notes.calls[index], call)
        ]
        if len(calls) < 3 + len(nudged):
            break
        sets += [
            (f"output {place + 1}", [one.outputs[place] for one in calls])
            for place in range(min(len(one.outputs) for one in calls))
        ]
    for what, (truth, was, now, *others) in sets:
        if truth and len({len(one) for one in (truth, was, now, *others)}) == 1:
            updates = EXACT_STEPS - 1 if what == last else 0
            yield _Vector(
                what=what, truth=truth, before=was, now=now, nudged=others, updates=updates
            )


def _drifts(first: Sequence[float], others: Sequence[Sequence[float]]) -> list[float]:
    """How far each loss may drift, going by nudged baselines; empty without any."""
    others = [losses for losses in others if len(losses) == len(first)]
    if not others:
        return []
    seen = [
        max(_relative(loss, losses[index]) for losses in others) for index, loss in enumerate(first)
    ]
    # Two losses that drift apart may cross: what was seen up to the next step counts.
    beyond = _beyond(len(others))
    return [beyond * max(seen[: index + 2]) for index in range(len(seen))]


def _beyond(nudged: int) -> float:
    """How many times as far as so many nudged runs another one may come by chance."""
    return _AS_NUDGED[min(nudged, len(_AS_NUDGED)) - 1]


def _seeded(
    before: Sequence[Notes], after: Sequence[Notes], precision: str | None
) -> Compared | None:
    """The mean loss with dropout on, against where another seed's is to be expected."""
    if not before[0].has_dropout:
        return None
    means = [_mean_loss(notes) for notes in before]
    known = [mean for mean in means if mean is not None]
    fixed = [mean for notes in after if (mean := _mean_loss(notes)) is not None]
    if len(known) < FEWEST_SEEDS or not fixed:
        return None
    middle = statistics.mean(known)
    student = _STUDENT[min(len(known) - FEWEST_SEEDS, len(_STUDENT) - 1)]
    reach = student * statistics.stdev(known) * (1 + 1 / len(known)) ** 0.5
    allowed = reach / max(abs(middle), 1e-12) + _SCALAR_UNITS * _UNIT[precision or "float32"]
    return Compared(
        what="losses", error=_relative(middle, statistics.median(fixed)), allowed=allowed
    )


def _by_scatter(before: Sequence[Notes], after: Sequence[Notes]) -> Numerics:
    """The data differ, as when workers draw them: losses must lie among the losses of steps."""
    known = [loss for notes in before for loss in _flat(notes.losses)]
    fixed = [loss for notes in after for loss in _flat(notes.losses)]
    if len(known) < FEWEST_SEEDS or not fixed:
        return Numerics(ok=False, why="it computes with other data, and shows no losses")
    reach = 3 * statistics.stdev(known) + 1e-6 * abs(statistics.mean(known))
    off = abs(statistics.mean(fixed) - statistics.mean(known))
    words = "its data are drawn anew; losses lie among those of the steps before"
    if off > reach:
        words = f"its data differ, and its losses are off by {off:.3g}, more than steps differ by"
    return Numerics(ok=off <= reach, why=words)


def _mean_loss(notes: Notes) -> float | None:
    losses = _flat(notes.losses[EXACT_STEPS:])
    return statistics.mean(losses) if losses else None


def _same_data(one: Notes, other: Notes) -> bool:
    """Whether the first calls got the same inputs."""
    if not one.calls or not other.calls:
        return True
    return _same_inputs(one.calls[0], other.calls[0])


def _same_inputs(one: Call, other: Call) -> bool:
    return len(one.inputs) == len(other.inputs) and all(
        _alike(*pair) for pair in zip(one.inputs, other.inputs, strict=True)
    )


def _alike(one: Input, other: Input) -> bool:
    if one.shape != other.shape or one.sum != other.sum:
        return False
    if one.values is None or other.values is None:
        return one.values == other.values
    return _distance(one.values, other.values) < 0.05


def _flat(losses: Sequence[Sequence[float]]) -> list[float]:
    return [loss for step in losses for loss in step]


def _relative(truth: float, value: float) -> float:
    if truth == value:
        return 0.0
    return abs(value - truth) / max(abs(truth), 1e-12)


def _distance(truth: Sequence[float], value: Sequence[float]) -> float:
    """Of two vectors, as a share of the first one's length."""
    apart, length = math.dist(truth, value), math.hypot(*truth)
    return apart / length if length else (0.0 if apart == 0 else math.inf)


def _percent(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-4 else f"{share * 1e6:.2g} ppm"
