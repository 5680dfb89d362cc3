"""Finds steps from what the hooks see: where one ends, and its kind.

Plain bookkeeping, without torch or a clock, so that every form of training loop can be tested.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Literal

import msgspec

from boundby.capture.torch.shapes import Shape, Shapes, is_batch_of, step_kind
from boundby.model.step_kind import Mode, StepKind, StepUnit

StepBy = Literal["auto", "optimizer", "forward", "backward", "mark"]

# A script that has created an optimizer is expected to step it; after this many calls it is not.
# The same applies to one that has stepped it and then only calls its model.
_PATIENCE = 500
# If it has never stepped, a row of evaluation calls may be all that it does: after this many they
# are steps, of which it is unclear until the patience has ended whether others will come.
_FEWEST_UNCLEAR = 20
# Calls that are weak evidence count less: an agent in training mode acts up to 50,000 times to fill
# its replay buffer before its first update (Mnih et al. 2015, "replay start size"), and embeddings
# made by a model that no optimizer updates precede the first step of another.
_WEIGHT_OF_DOUBTFUL = 0.01
# Before a cycle of several optimizers is known, one of them may step this often alone: critics are
# commonly trained five times per generator.
_FIRST_CYCLE = 5
# This many calls in a row without gradients, of a model that an optimizer updates, are not part of
# the training step: an evaluation, or rollouts of reinforcement learning.
_FEWEST_IN_ROW = 3
# Scripts commonly evaluate after their first step, to test that they can. Fewer steps of a kind are
# not known well enough to be compared with those of an evaluation.
_FEWEST_TRAINED = 3
# Rollouts of up to this many calls, before each update, are one step with it.
_SHORT_ROLLOUT = 64
# In a known cycle, an optimizer that is missing for more than three times the usual number of steps
# has stopped; at most this many steps of another are awaited.
_LONGEST_CYCLE = 50


class StepFinder:
    """Finds where a step ends. `on_step(label)` is called at each end, with the label of its kind.

    `on_training` is called when a script that seemed to run forward only turns out to train, and
    when its training goes on after an evaluation that came with the first few steps.
    Modules and optimizers are identified by numbers that are never reused.
    """

    def __init__(
        self,
        step_by: StepBy,
        on_step: Callable[[str], None],
        on_training: Callable[[], None] = lambda: None,
        *,
        may_be_unclear: bool = True,
    ) -> None:
        """`may_be_unclear`: steps may be found before it is known whether others will come."""
        self.step_by: StepBy = step_by
        self.seen = {"calls": 0, "backward passes": 0, "optimizer steps": 0, "marks": 0}
        self._kinds: dict[str, StepKind] = {}  # by label
        self._units: dict[str, Counter[StepUnit]] = defaultdict(Counter)
        self._decided: StepBy | None = None if step_by == "auto" else step_by
        self._on_step = on_step
        self._on_training = on_training
        self._cycle = _Cycle()
        self._anchor = _Anchor()
        self._shapes = Shapes()
        self._calls_since_optimizer = 0.0
        self._may_be_unclear = may_be_unclear
        self._clear_calls = 0
        self._inside = _Inside()
        self._row = _Row()
        self._trained = 0  # complete training steps
        self.in_row = False  # whether the step that has just ended belongs to an evaluation

    def mode_of(self, label: str) -> Mode:
        """Whether steps of a kind train or only predict."""
        kind = self._kinds.get(label)
        return kind.mode if kind is not None else "step"

    @property
    def kinds(self) -> dict[str, StepKind]:
        """Every kind of step so far by its label, each with what most of its steps contain."""
        return {
            label: msgspec.structs.replace(kind, unit=self._units[label].most_common(1)[0][0])
            for label, kind in self._kinds.items()
        }

    @property
    def awaits_rollouts(self) -> bool:
        """Whether rollouts came before the first update, and no complete row of them since.

        They come again, and may take longer than the updates between them. A model that only
        predicts may be in training mode too.
        """
        return self._decided != "forward" and self._row.were_before and not self._row.came_again

    @property
    def awaits_training(self) -> bool:
        """Whether this is an evaluation after the first few steps of a training, which goes on."""
        return self.in_row and self._trained > 0 and self._is_early

    @property
    def is_unclear(self) -> bool:
        """Whether calls are steps although an optimizer was made, which may step later."""
        return (
            self._decided == "forward"
            and self.step_by == "auto"
            and bool(self._cycle.made)
            and not self.seen["optimizer steps"]
            and self._calls_since_optimizer <= _PATIENCE
        )

    @property
    def found_by(self) -> StepBy | None:
        """How steps are being found; None before the first."""
        return self._decided

    def mark(self) -> None:
        """The script itself marks the end of a step."""
        self.seen["marks"] += 1
        if self.step_by in ("auto", "mark"):
            self._decided = "mark"
            self._end()

    def optimizer_made(self, optimizer: int) -> None:
        self._cycle.made.add(optimizer)

    def optimizer_gone(self, optimizer: int) -> None:
        """An optimizer was deleted: it is no longer awaited."""
        self._cycle.forget(optimizer)

    def optimizer_stepped(self, optimizer: int) -> None:
        """An optimizer's step has ended; a step ends when all of them have stepped."""
        self.seen["optimizer steps"] += 1
        self._calls_since_optimizer = 0.0
        self._inside.trained = True
        self._inside.updates += 1
        self._row.ends(is_split=self._decided == "optimizer")
        if self._decided == "mark" or self.step_by == "forward":
            return
        if self._decided != "optimizer":
            if self._decided is not None:
                self._on_training()
            self._decided = "optimizer"
            self._inside.evaluations = 0
        if self._cycle.completes(optimizer):
            self._trained += 1
            self._row.updates += 1
            self._end()

    def backward_ended(self) -> None:
        """A backward pass has ended. It ends the step if weights are updated by hand and no module
        is called."""
        self.seen["backward passes"] += 1
        self._inside.trained = True
        self._inside.backwards += 1
        self._row.ends(is_split=self._decided == "optimizer")
        nothing_else = not self._cycle.made and not self.seen["calls"]
        if self._decided == "backward" or (self._decided is None and nothing_else):
            self._decided = "backward"
            self._end()

    def called(
        self,
        key: int,
        training: bool,
        shape: Shape | None,
        patience: int = _PATIENCE,
        *,
        waits: bool = False,
        owned: bool = True,
        gradients: bool = True,
    ) -> None:
        """An outermost call begins. In a forward-only script a step ends here; also between calls
        without gradients in a row, in a script that trains.

        `patience`: the number of calls without an optimizer step after which this is no training.
        `waits`: the model is in training mode, whether or not gradients are recorded. `owned`: an
        optimizer updates it, or none is known. `gradients`: they are recorded.
        """
        self.seen["calls"] += 1
        if not gradients and self.step_by == "auto" and self._decided in (None, "optimizer"):
            if owned and self._row.begins_step(key, is_rollout=waits) and self._splits_rows:
                self._end(in_row=True)
            if self._splits_rows:
                self._inside.add(key, training, shape, owned, gradients=False)
                return
        elif self._row.ends(is_split=self._splits_rows):
            self._end(in_row=True)
            if self._is_early:
                # Its time says nothing about how often evaluations come.
                self._on_training()
        is_clear = owned and not waits
        self._calls_since_optimizer += 1.0 if is_clear else _WEIGHT_OF_DOUBTFUL
        self._clear_calls += is_clear
        if self._decided == "backward" and self.step_by == "auto":
            self._decided = None
            self._on_training()
        if self._is_forward_only(patience) and self._anchor.begins_step(key):
            self._decided = "forward"
            if self._inside.calls:
                self._end()
        self._inside.add(key, training, shape, owned, gradients=gradients)

    @property
    def _is_early(self) -> bool:
        """Whether it is too early to compare training with the calls between. Not after rollouts
        before the first update: those come again."""
        return self._trained < _FEWEST_TRAINED and not self._row.were_before

    @property
    def _splits_rows(self) -> bool:
        """Whether a row of calls ends a step: before the first update it is unknown whether a
        script trains."""
        return self._decided == "optimizer" and self.step_by == "auto"

    def _is_forward_only(self, patience: int) -> bool:
        if self._decided == "forward":
            return True
        if self.step_by != "auto" or self._decided == "mark":
            return False
        may_be_all = self._may_be_unclear and not self.seen["optimizer steps"]
        if may_be_all and self._clear_calls > _FEWEST_UNCLEAR:
            return True
        # Between two optimizers of a script that makes a new one for each model there is none.
        is_untrained = not self._cycle.made and not self.seen["optimizer steps"]
        return is_untrained or self._calls_since_optimizer > patience

    def _end(self, *, in_row: bool = False) -> None:
        ended, self._inside = self._inside, _Inside()
        self.in_row = in_row
        kind = ended.kind(self._shapes)
        self._kinds[kind.label] = kind
        self._units[kind.label][ended.unit] += 1
        self._on_step(kind.label)


class _Inside:
    """What has happened since the last step ended."""

    __slots__ = (
        "backwards",
        "calls",
        "evaluations",
        "first",
        "first_owned",
        "first_training",
        "owned_key",
        "single",
        "trained",
        "updates",
        "with_gradients",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.with_gradients = 0
        self.evaluations = 0
        self.backwards = 0
        self.updates = 0
        self.trained = False
        self.first: Shape | None = None
        self.first_training: Shape | None = None
        self.first_owned: Shape | None = None
        self.owned_key: int | None = None  # the module that got it
        self.single = False  # whether single samples were passed before a batch of them

    @property
    def unit(self) -> StepUnit:
        return StepUnit(
            calls=self.with_gradients,
            backwards=self.backwards,
            updates=self.updates,
            evaluations=self.calls - self.with_gradients,
        )

    def add(
        self, key: int, training: bool, shape: Shape | None, owned: bool, *, gradients: bool
    ) -> None:
        self.calls += 1
        self.with_gradients += gradients
        self.evaluations += not training and owned
        self.first = self.first or shape
        if training:
            self.first_training = self.first_training or shape
            if owned and gradients:
                if self.first_owned is None and shape is not None:
                    self.first_owned, self.owned_key = shape, key
                elif key == self.owned_key and is_batch_of(shape, self.first_owned):
                    # Rollouts that record gradients come before the update on their samples.
                    self.first_owned, self.single = shape, True

    def kind(self, shapes: Shapes) -> StepKind:
        """The mode, the input shape and what else it ran."""
        if self.trained:
            shape = self.first_owned or self.first_training
            return step_kind("train", shapes.own(shape), self.evaluations, single=self.single)
        return step_kind("forward", shapes.own(self.first)) if self.calls else step_kind("step")


class _Row:
    """Calls without gradients, one after the other, with no training between them."""

    def __init__(self) -> None:
        self.were_before = False  # rollouts, before the first update
        self.came_again = False
        self.updates = 0  # since the last row
        self._calls = 0
        self._last_rollout = 0  # the calls of the last row, if it was one
        self._is_part = False  # of the training step
        self._has_split = self._has_before = False
        self._rollouts = False
        self._anchor = _Anchor()

    def begins_step(self, key: int, *, is_rollout: bool) -> bool:
        """Count a call; whether a step ends before it. Once there was a row, from the second call
        on."""
        if not self._calls:
            is_short = _FEWEST_IN_ROW <= self._last_rollout <= _SHORT_ROLLOUT
            self._is_part = is_short and self.updates == 1
            self.came_again |= self._is_part
        self._calls += 1
        self._rollouts |= is_rollout
        fewest = 2 if self._has_before else _FEWEST_IN_ROW
        is_next = self._anchor.begins_step(key) and self._calls >= fewest
        if self._is_part and is_rollout and self._calls <= _SHORT_ROLLOUT:
            return False
        self._has_split |= is_next
        return is_next

    def ends(self, *, is_split: bool) -> bool:
        """Training begins, or continues; whether a step of the row ends here."""
        found = self._has_split
        if found:
            self._has_before |= is_split
            self.came_again |= is_split and self._rollouts
            self.were_before |= not is_split and self._rollouts
        if self._calls:
            self._last_rollout = self._calls if self._rollouts else 0
            self.updates = 0
        self._calls, self._has_split, self._rollouts = 0, False, False
        self._anchor = _Anchor()
        return found and is_split


class _Cycle:
    """The optimizers of a script: in a step each of them steps."""

    def __init__(self) -> None:
        self.made: set[int] = set()
        self._members: set[int] = set()
        self._fired: dict[int, int] = {}
        # How often one of them stepped in the longest cycle so far.
        self._longest = 0

    def completes(self, optimizer: int) -> bool:
        """Count an optimizer step; True if it is the last of a cycle."""
        self.made.add(optimizer)
        if self._members:
            self._members.add(optimizer)
        self._fired[optimizer] = self._fired.get(optimizer, 0) + 1
        busiest = max(self._fired.values())
        if (self._members or self.made) - self._fired.keys() and busiest <= self._limit():
            return False
        self._members = set(self._fired)
        self._longest = max(self._longest, busiest) if busiest <= self._limit() else 1
        self._fired = {}
        return True

    def forget(self, optimizer: int) -> None:
        self.made.discard(optimizer)
        self._members.discard(optimizer)
        self._fired.pop(optimizer, None)

    def _limit(self) -> int:
        return min(_LONGEST_CYCLE, 3 * self._longest + 3) if self._members else _FIRST_CYCLE


class _Anchor:
    """The module that is called once in every step of a forward-only script: the first one called
    twice."""

    def __init__(self) -> None:
        self._key: int | None = None
        self._counts: dict[int, int] = {}

    def begins_step(self, key: int) -> bool:
        count = self._counts[key] = self._counts.get(key, 0) + 1
        # One that is no longer called is replaced by one that is.
        if key != self._key and count > (1 if self._key is None else _LONGEST_CYCLE):
            self._key = key
        if key != self._key:
            return False
        self._counts = {}
        return True
