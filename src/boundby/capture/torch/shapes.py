"""The input shapes of steps: they distinguish prefill from decode, and a short last batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boundby.model.step_kind import Mode, StepKind

Shape = tuple[int, ...]

# With more shapes than this, steps are one kind with varying shapes; except those of a shape that
# has at least this share of them all, as decoding has beside prompts of any length.
_MOST_SHAPES = 8
_OWN_SHARE = 0.2  # one shape in five; assumed
# A tensor further back in a long list is not looked for.
_MOST_ITEMS = 16


class Shapes:
    """Decides which input shapes are kinds of steps of their own."""

    def __init__(self) -> None:
        self._seen: dict[Shape, int] = {}
        self._steps = 0

    def own(self, shape: Shape | None) -> Shape | None:
        """The shape of a step, if steps of this shape are a kind; None for one of many."""
        if shape is None:
            return None
        self._steps += 1
        self._seen[shape] = self._seen.get(shape, 0) + 1
        many = len(self._seen) > _MOST_SHAPES
        return None if many and self._seen[shape] < _OWN_SHARE * self._steps else shape


def is_batch_of(shape: Shape | None, sample: Shape | None) -> bool:
    """Whether this is the shape of several such samples; a sample may itself be a batch of one."""
    if shape is None or not sample or not shape or shape[0] < 2:
        return False
    return shape[1:] == sample or (sample[0] == 1 and shape[1:] == sample[1:])


def step_kind(
    mode: Mode, shape: Shape | None = None, evaluations: int = 0, *, single: bool = False
) -> StepKind:
    """`train 32x128 with 2 evaluation calls`. The first of two or more dimensions is the batch.

    `single`: the model was also called with single samples of it.
    """
    label = mode if shape is None else f"{mode} {'x'.join(map(str, shape)) or 'scalar'}"
    if single:
        label += " after single samples"
    if evaluations:
        label += f" with {evaluations} evaluation call{'' if evaluations == 1 else 's'}"
    samples = shape[0] if shape is not None and len(shape) > 1 else None
    return StepKind(label=label, series=label, mode=mode, shape=shape, samples=samples)


def first_shape(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Shape | None:
    """The shape of the first tensor among the arguments: enough to distinguish prefill from
    decode. The order of keywords has no meaning: labels may come first, one number a sample."""
    for value in args[:_MOST_ITEMS]:
        if (shape := _shape_in(value)) is not None:
            return shape
    first: Shape | None = None
    for value in kwargs.values():
        shape = _shape_in(value)
        if shape is not None and len(shape) > 1:
            return shape
        first = first if first is not None else shape
    return first


def _shape_in(value: Any) -> Shape | None:
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        return tuple(int(extent) for extent in shape)
    if isinstance(value, (list, tuple)):
        return first_shape(tuple(value[:_MOST_ITEMS]), {})
    if isinstance(value, Mapping):
        return first_shape((), value)
    return None
