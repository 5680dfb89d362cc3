"""The step's own operator calls with something else about them, to be timed or costed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from boundby.hardware.op_benchmark import OpBenchmark, channels_last
from boundby.model import OpCall, Tensor
from boundby.step.batch_invariant import BATCHED_PRODUCTS
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord

Alter = Callable[[Tensor], Tensor]
_FEWER_DIGITS = ("matmul.tf32", "matmul.bfloat16")
_RESIZED = (
    "nearest1d",
    "nearest2d",
    "nearest3d",
    "linear1d",
    "bilinear2d",
    "bicubic2d",
    "trilinear3d",
)
# Operators that are told how many samples there are: which argument is that number, or the shape
# that begins with it.
_SAMPLES_AT = {
    "aten::native_group_norm": 3,
    "aten::native_group_norm_backward": 5,
    "aten::slice_backward": 1,
    "aten::select_backward": 1,
    **{f"aten::upsample_{kind}_backward": 2 for kind in _RESIZED},
}
_ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention")
# Layers of recurrent networks, and which argument says that samples come before time.
_RECURRENT = {"aten::mkldnn_rnn_layer": None, "aten::_cudnn_rnn": 10, "aten::miopen_rnn": 8}


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


def grown(
    call: OpCall, factor: int, grows: Sequence[bool], squares: Iterable[tuple[int, ...]] = ()
) -> OpCall:
    """The call with so many times the batch, a power of two."""
    held = set(squares)
    while factor > 1:
        call, factor = doubled(call, grows, held), factor // 2
        held = {tuple(2 * extent for extent in shape) for shape in held}
    return call


def doubled(
    call: OpCall, grows: Sequence[bool], squares: Container[tuple[int, ...]] = ()
) -> OpCall:
    """The call with twice the batch, in those of its tensors that hold samples.

    The samples are the slowest axis in memory, whatever its place in the shape; of several tensors
    of one shape, the axis is the foremost of theirs. In attention they are foremost in any case.
    Beside matrices a vector holds samples only where it is as long as they have rows, and not as
    they have channels. What is broadcast to the samples, a weight too, is broadcast to all of them.
    One sample is the foremost axis, of one. Matrices of the shapes in `squares` hold samples on
    both axes.
    """
    if is_recurrent(call.name):
        return _more_sequences(call)
    axes: dict[tuple[int, ...], int] = {}
    foremost = _holds_them_foremost(call, grows)
    for tensor, grow in zip(call.tensors, grows, strict=True):
        axis = slowest_axis(tensor) if grow and len(tensor.shape) > 1 else None
        if axis is not None and foremost and tensor.shape[0] > 1:
            axis = 0
        if axis is not None:
            axes[tensor.shape] = min(axis, axes.get(tensor.shape, axis))
    if not axes:
        return _told(with_tensors(call, map(_one_more, call.tensors, grows)), {1})
    rows = {shape[axis] for shape, axis in axes.items()}
    channels = {
        extent
        for shape, at in axes.items()
        if shape not in squares
        for extent in shape[:at] + shape[at + 1 :]
    }
    ranks = {(len(shape), axis, shape[axis]) for shape, axis in axes.items()}
    tensors: list[Tensor] = []
    for tensor, grow in zip(call.tensors, grows, strict=True):
        if grow and len(tensor.shape) == 1:
            alone = not rows or tensor.shape[0] in rows - channels
            tensors.append(_twice(tensor, 0) if alone else tensor)
        elif grow and tensor.shape in squares:
            tensors.append(_twice(_twice(tensor, 0), 1))
        elif grow and tensor.shape in axes and slowest_axis(tensor) is not None:
            tensors.append(_twice(tensor, axes[tensor.shape]))
        else:
            axis = _broadcast_axis(tensor, ranks)
            tensors.append(tensor if axis is None else _twice(tensor, axis))
    return _told(with_tensors(call, tensors), rows)


def _holds_them_foremost(call: OpCall, grows: Sequence[bool]) -> bool:
    """Whether samples are on the first axis, with whatever axis slowest in memory.

    Of products of samples with samples only those are not that add them up, as experts' gradients.
    """
    if any(kind in call.name for kind in _ATTENTION):
        return True
    places = BATCHED_PRODUCTS.get(_plain(call.name))
    if places is None or len(call.tensors) <= max(places) or not all(grows[at] for at in places):
        return False
    left, right = (slowest_axis(call.tensors[at]) for at in places)
    return (left, right) != (2, 1)


def is_batched_product(name: str) -> bool:
    """Whether an operator multiplies matrix after matrix, each by one of its own."""
    return _plain(name) in BATCHED_PRODUCTS


def _plain(name: str) -> str:
    return name.partition("::")[2]


def is_recurrent(name: str) -> bool:
    """Whether an operator is a layer that goes through time on its own, forward."""
    return name in _RECURRENT


def _more_sequences(call: OpCall) -> OpCall:
    """Twice the sequences, as long as before, and their states; the same where they are packed."""
    x, *others = call.tensors
    if len(x.shape) != 3:
        return call
    told = _RECURRENT[call.name]
    axis = 0 if told is not None and call.args[told] else 1
    # Of one layer at a time a state has an axis less, and stands behind four weights.
    weights, rank = (0, 3) if told is not None else (4, 2)
    at = rank - 2
    grown = [_twice(x, axis), *others[:weights]]
    for tensor in others[weights:]:
        is_state = len(tensor.shape) == rank and tensor.shape[at] == x.shape[axis]
        grown.append(_twice(tensor, at) if is_state else tensor)
    return with_tensors(call, grown)


def _told(call: OpCall, rows: set[int]) -> OpCall:
    """The call with twice the number of samples, where it is told one of these numbers."""
    place = _SAMPLES_AT.get(call.name)
    if place is None or place >= len(call.args):
        return call
    given = call.args[place]
    first, *others = given if isinstance(given, tuple) and given else (given,)
    if not isinstance(first, int) or first not in rows:
        return call
    twice = (2 * first, *others) if isinstance(given, tuple) else 2 * first
    return OpCall(name=call.name, args=(*call.args[:place], twice, *call.args[place + 1 :]))


def with_tensors(call: OpCall, tensors: Iterable[Tensor]) -> OpCall:
    """The call with others in the place of its tensors, in their order."""
    left = iter(tensors)

    def plain(value: object) -> object:
        if isinstance(value, Tensor):
            return next(left)
        if isinstance(value, tuple):
            return tuple(plain(item) for item in value)
        return value

    return OpCall(name=call.name, args=tuple(map(plain, call.args)))


def _one_more(tensor: Tensor, grows: bool) -> Tensor:
    """Two samples in the place of one."""
    shape, strides = tensor.shape, tensor.strides
    if not grows or (len(shape) > 1 and shape[0] > 1) or not shape:
        return tensor
    if len(shape) == 1 or strides is None or len(strides) != len(shape):
        return _twice(tensor, 0)
    reach = max(extent * stride for extent, stride in zip(shape[1:], strides[1:], strict=True))
    return Tensor(shape=(2, *shape[1:]), dtype=tensor.dtype, strides=(reach, *strides[1:]))


def slowest_axis(tensor: Tensor) -> int | None:
    """None where the batch is broadcast, or where there is nothing to tell the axes apart."""
    shape, strides = tensor.shape, tensor.strides
    if strides is None or len(strides) != len(shape):
        return 0 if shape[0] > 1 else None
    axis = max(range(len(shape)), key=lambda axis: (strides[axis], -axis))
    return axis if shape[axis] > 1 and strides[axis] else None


def _broadcast_axis(tensor: Tensor, ranks: Iterable[tuple[int, int, int]]) -> int | None:
    """Where samples, of which others have so many at that place, all read the same numbers."""
    strides = tensor.strides or ()
    places = (
        axis
        for rank, axis, extent in ranks
        if rank == len(tensor.shape) == len(strides)
        and tensor.shape[axis] == extent
        and strides[axis] == 0
    )
    return next(places, None)


def _twice(tensor: Tensor, axis: int) -> Tensor:
    shape = tuple(2 * extent if at == axis else extent for at, extent in enumerate(tensor.shape))
    strides = tensor.strides
    if strides and strides[axis] and any(stride > strides[axis] for stride in strides):
        strides = _dense_like(tensor, shape)
    return Tensor(shape=shape, dtype=tensor.dtype, strides=strides)


def _dense_like(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if tensor.strides is None or len(tensor.strides) != len(shape):
        return None
    strides, reach = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: (tensor.strides or ())[axis]):
        strides[axis], reach = reach, reach * shape[axis]
    return tuple(strides)


def is_loose(record: OpRecord) -> bool:
    """Whether the step computes its float32 products in fewer digits: on CUDA, and on a CPU."""
    return record.cost is not None and not record.cost.flops.keys().isdisjoint(_FEWER_DIGITS)


def benchmark(call: OpCall, alter: Alter = as_it_is, *, loose: bool) -> OpBenchmark:
    """The call with its tensors altered; which memory they are is of no matter.

    In other dtypes than float32 nothing is loose, and calls that differ in it alone are one.
    """

    def plain(value: object) -> object:
        if isinstance(value, Tensor):
            changed = alter(value)
            return Tensor(shape=changed.shape, dtype=changed.dtype, strides=changed.strides)
        if isinstance(value, (list, tuple)):
            return tuple(plain(item) for item in value)
        return value

    in_float32 = any(alter(tensor).dtype == "float32" for tensor in call.tensors)
    return OpBenchmark(
        name=call.name,
        args=tuple(map(plain, call.args)),  # type: ignore[arg-type]
        loose=loose and in_float32,
    )


def timed_ratio(
    step: StepView, record: OpRecord, alter: Alter, *, loose: bool | None = None
) -> float | None:
    """How long the altered call takes beside the call as it is, both timed; None if unknown.

    Both on the units that the step itself uses, unless `loose` says otherwise of the altered one.
    """
    call = step.call(record)
    if call is None:
        return None
    now = is_loose(record)
    then = now if loose is None else loose
    return ratio_of(step, benchmark(call, loose=now), benchmark(call, alter, loose=then))


def ratio_of(step: StepView, before: OpBenchmark, after: OpBenchmark) -> float | None:
    now, then = step.timings.ns(before), step.timings.ns(after)
    return then / now if now and then else None
