"""Steps with input shapes that a variant has not run before.

Such a step may tune kernels, compile or capture again: its time does not predict the next ones. A
script with batches of different lengths has new shapes in most of its first steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from boundby.prove.evidence import Variant

# A variant's steps are left out until this share of the remaining time was spent on them:
# if shapes never repeat, their first uses are part of every step.
_MAX_SHARE = 0.2
# Compiling comes to an end: after a few shapes, a compiler makes code for shapes of any size.
_MAX_COMPILING_SHARE = 0.5
# The first use of a shape is not slow up to this many times the variant's usual step.
_USUAL_RATIO = 1.25
_MAX_DEPTH = 3  # time limit: nesting of containers that is looked into

Shapes = tuple[Any, ...]


class FirstUses:
    """The shapes that each variant has run, and the time of their first runs."""

    def __init__(self) -> None:
        self._current: list[Shapes] = []
        self._seen: dict[Variant, set[Shapes]] = {}
        self._spent_s: dict[Variant, float] = {}

    @property
    def elements(self) -> int:
        """The number of elements in the inputs of the current step's calls so far."""
        return sum(math.prod(shape) for shapes in self._current for shape in shapes)

    def call_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """One outermost call of the current step, with these inputs."""
        self._current.append(tuple(_shapes((args, kwargs), _MAX_DEPTH)))

    def step_ended(
        self,
        variant: Variant,
        seconds: float,
        *,
        usual_s: float,
        left_s: float,
        has_compiled: bool = False,
    ) -> bool:
        """Whether the step that ended is to be left out, as a slow first use of its shapes.

        `has_compiled`: something was compiled in it, for shapes that are perhaps known.
        """
        shapes = tuple(self._current)
        self._current.clear()
        seen_shapes = self._seen.setdefault(variant, set())
        if shapes in seen_shapes and not has_compiled:
            return False
        seen_shapes.add(shapes)
        if seconds <= _USUAL_RATIO * usual_s:
            return False
        spent_s = self._spent_s.get(variant, 0.0) + seconds
        if spent_s > (_MAX_COMPILING_SHARE if has_compiled else _MAX_SHARE) * left_s:
            return False
        self._spent_s[variant] = spent_s
        return True

    def prepared(self, variant: Variant) -> None:
        """A step that is not timed anyway: mark its shapes as known."""
        self._seen.setdefault(variant, set()).add(tuple(self._current))
        self._current.clear()


def _shapes(value: Any, depth: int) -> Iterator[Any]:
    shape = getattr(value, "shape", None)
    if shape is not None:
        yield tuple(shape)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _shapes(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from _shapes(item, depth - 1)
