"""The step's operator calls with a changed property, to benchmark them or compute their cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from boundby.hardware.op_benchmark import OpBenchmark, channels_last
from boundby.model import HostKind, OpCall, Tensor
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord

Alter = Callable[[Tensor], Tensor]
_ATEN = "aten::"
_FEWER_DIGITS = ("matmul.tf32", "matmul.bfloat16")


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
    """Matrices with some dimensions larger, dense in the same order."""

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


def with_tensors(call: OpCall, tensors: Iterable[Tensor]) -> OpCall:
    """The call with other tensors in the place of its own, in the same order."""
    replacements = iter(tensors)

    def plain(value: object) -> object:
        if isinstance(value, Tensor):
            return next(replacements)
        if isinstance(value, tuple):
            return tuple(plain(item) for item in value)
        return value

    return OpCall(name=call.name, args=tuple(map(plain, call.args)))


def _dense_like(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if tensor.strides is None or len(tensor.strides) != len(shape):
        return None
    strides, reach = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: (tensor.strides or ())[axis]):
        strides[axis], reach = reach, reach * shape[axis]
    return tuple(strides)


def is_loose(record: OpRecord) -> bool:
    """Whether the step computes its float32 products with reduced precision: on CUDA, and on a
    CPU."""
    return record.cost is not None and not record.cost.flops.keys().isdisjoint(_FEWER_DIGITS)


def benchmark(call: OpCall, alter: Alter = as_it_is, *, loose: bool) -> OpBenchmark:
    """The benchmark of a call with altered tensors, at any addresses.

    The precision setting applies to float32 alone: for other dtypes it is left out, so that equal
    calls are one.
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


def outermost_call(step: StepView, record: OpRecord) -> OpCall | None:
    """The operator that the program or autograd called, in which this one ran: the framework
    chooses what implements it by its arguments."""
    host, names = step.timeline.host, step.timeline.names
    row, call = record.row, None
    while row >= 0 and host.kind[row] == HostKind.OP and names[host.name[row]].startswith(_ATEN):
        if host.call[row] >= 0:
            call = step.timeline.calls[host.call[row]]
        row = int(host.parent[row])
    return call


def timed_ratio(
    step: StepView, record: OpRecord, alter: Alter, *, loose: bool | None = None
) -> float | None:
    """The time of the altered call over that of the unchanged call, both benchmarked; None if
    unknown.

    Both use the units that the step uses, unless `loose` says otherwise for the altered one.
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
