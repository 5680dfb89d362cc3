"""The step's own operator calls with something else about them, to be timed or costed."""

from __future__ import annotations

from collections.abc import Callable

from boundby.account.work import Work
from boundby.model import OpCall, Tensor
from boundby.picture import Picture
from boundby.roofs.operators import Exercise, channels_last

Alter = Callable[[Tensor], Tensor]


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def in_dtype(dtype: str) -> Alter:
    """Floating-point tensors in another dtype."""

    def alter(tensor: Tensor) -> Tensor:
        if not tensor.dtype.startswith(("float", "bfloat")):
            return tensor
        return Tensor(shape=tensor.shape, dtype=dtype, strides=tensor.strides)

    return alter


def padded(extents: dict[int, int]) -> Alter:
    """Matrices with some extents longer, dense in the order they were in."""

    def alter(tensor: Tensor) -> Tensor:
        shape = tuple(extents.get(extent, extent) for extent in tensor.shape)
        if shape == tensor.shape:
            return tensor
        return Tensor(shape=shape, dtype=tensor.dtype, strides=_dense_like(tensor, shape))

    return alter


def with_channels_last(tensor: Tensor) -> Tensor:
    if len(tensor.shape) != 4:
        return tensor
    return Tensor(shape=tensor.shape, dtype=tensor.dtype, strides=channels_last(tensor.shape))


def _dense_like(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if tensor.strides is None or len(tensor.strides) != len(shape):
        return None
    strides, reach = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: (tensor.strides or ())[axis]):
        strides[axis], reach = reach, reach * shape[axis]
    return tuple(strides)


def exercise(call: OpCall, alter: Alter = as_it_is, *, tf32: bool = False) -> Exercise:
    """The call with its tensors altered; which memory they are is of no matter."""

    def plain(value: object) -> object:
        if isinstance(value, Tensor):
            changed = alter(value)
            return Tensor(shape=changed.shape, dtype=changed.dtype, strides=changed.strides)
        if isinstance(value, (list, tuple)):
            return tuple(plain(item) for item in value)
        return value

    return Exercise(name=call.name, args=tuple(map(plain, call.args)), tf32=tf32)  # type: ignore[arg-type]


def timed_ratio(
    picture: Picture, work: Work, alter: Alter, *, was_tf32: bool = False, tf32: bool = False
) -> float | None:
    """How long the altered call takes beside the call as it is, both timed; None if unknown."""
    call = picture.call(work)
    if call is None:
        return None
    now = picture.timings.ns(exercise(call, tf32=was_tf32))
    then = picture.timings.ns(exercise(call, alter, tf32=tf32))
    return then / now if now and then else None
