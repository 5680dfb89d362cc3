"""From what the hooks see to steps: where one ends, and what kind of step it was.

Pure bookkeeping, without torch or a clock, so that every habit of a training loop can be tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

StepBy = Literal["auto", "optimizer", "forward", "mark"]

# A script that has made an optimizer is expected to step it; this many calls later it is not.
_PATIENCE = 500
# An optimizer that stays silent while the others fire this often has left the cycle.
_SILENT = 50
# With more shapes than this, steps are of one kind whose shapes vary.
_MOST_SHAPES = 8


class Call:
    """An outermost call inside a step: what was called, how, and on what shape."""

    __slots__ = ("key", "shape", "training")

    def __init__(self, key: int, training: bool, shape: tuple[int, ...] | None) -> None:
        self.key = key
        self.training = training
        self.shape = shape


class StepFinder:
    """Tells where a step ends. `on_step(kind)` is called at each end with the kind that ended."""

    def __init__(self, step_by: StepBy, on_step: Callable[[str], None]) -> None:
        self.step_by: StepBy = step_by
        self.seen = {"calls": 0, "optimizer steps": 0, "marks": 0}
        self._decided: StepBy | None = None if step_by == "auto" else step_by
        self._on_step = on_step
        self._optimizers_made = 0
        self._fired: dict[int, int] = {}
        self._members: set[int] = set()
        self._calls: list[Call] = []
        self._anchor: int | None = None
        self._counts: dict[int, int] = {}
        self._shapes: set[tuple[int, ...] | None] = set()

    @property
    def found_by(self) -> StepBy | None:
        """How steps are being found; None before the first."""
        return self._decided

    def mark(self) -> None:
        """The script says itself that a step ends here."""
        self.seen["marks"] += 1
        if self.step_by in ("auto", "mark"):
            self._decided = "mark"
            self._end("step")

    def optimizer_made(self) -> None:
        self._optimizers_made += 1

    def optimizer_stepped(self, optimizer: int) -> None:
        """An optimizer's step has ended; a step ends when all of them have fired."""
        self.seen["optimizer steps"] += 1
        if self._decided in ("mark",) or self.step_by == "forward":
            return
        if self._decided != "optimizer":
            self._decided = "optimizer"
            self._calls = [call for call in self._calls if call.training][-1:]
        self._members.add(optimizer)
        self._fired[optimizer] = self._fired.get(optimizer, 0) + 1
        missing = self._members - self._fired.keys()
        if missing and max(self._fired.values()) > _SILENT:
            self._members -= missing
            missing = set()
        if not missing:
            self._fired.clear()
            self._end(self._train_kind())

    def called(self, key: int, training: bool, shape: tuple[int, ...] | None) -> None:
        """An outermost call begins. In a forward-only script that is where a step ends."""
        self.seen["calls"] += 1
        if self._decided == "optimizer" or self._decided == "mark":
            self._calls.append(Call(key, training, shape))
            return
        if self._decided is None and not self._no_optimizer_in_sight():
            self._calls.append(Call(key, training, shape))
            return
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._anchor is None and self._counts[key] > 1:
            self._anchor = key
        if key == self._anchor:
            self._decided = self._decided or "forward"
            if self._calls:
                self._end(self._forward_kind())
        self._calls.append(Call(key, training, shape))

    def _no_optimizer_in_sight(self) -> bool:
        return not self._optimizers_made or self.seen["calls"] > _PATIENCE

    def _end(self, kind: str) -> None:
        self._calls = []
        self._on_step(kind)

    def _train_kind(self) -> str:
        """`train`, with what else the step ran and on which shape it did."""
        others = sum(not call.training for call in self._calls)
        kind = f"train{self._shape_words(next((c for c in self._calls if c.training), None))}"
        return f"{kind} with {others} evaluation calls" if others else kind

    def _forward_kind(self) -> str:
        anchor = next((call for call in self._calls if call.key == self._anchor), None)
        return f"forward{self._shape_words(anchor)}"

    def _shape_words(self, call: Call | None) -> str:
        if call is None or call.shape is None:
            return ""
        self._shapes.add(call.shape)
        if len(self._shapes) > _MOST_SHAPES:
            return ""
        return " " + "x".join(map(str, call.shape))


def first_shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...] | None:
    """The shape of the first tensor among the arguments: enough to tell prefill from decode."""
    for value in (*args, *kwargs.values()):
        shape = getattr(value, "shape", None)
        if shape is not None and hasattr(value, "dtype"):
            return tuple(int(extent) for extent in shape)
        if isinstance(value, (list, tuple)):
            nested = first_shape(tuple(value), {})
            if nested is not None:
                return nested
        elif isinstance(value, dict):
            nested = first_shape((), value)
            if nested is not None:
                return nested
    return None
