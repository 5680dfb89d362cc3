"""Shared by all formulas: arguments, shapes, dtypes and compulsory memory traffic.

Compulsory traffic: each distinct input element is read once, each output element written once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from boundby.model import DTYPE_BYTES, Argument, Cost, OpCall, Tensor
from boundby.ops.registry import NotRecordedError

FLOATS = ("float8", "bfloat16", "float16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
COMPLEXES = ("complex64", "complex128")

# c10::ScalarType, which a profiler records as a number.
SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bfloat16",
    23: "float8",
    24: "float8",
    25: "float8",
    26: "float8",
}


def argument(call: OpCall, position: int) -> Argument:
    """Return an argument, or None if it was omitted or not recorded."""
    return call.args[position] if position < len(call.args) else None


def maybe(call: OpCall, position: int) -> Tensor | None:
    """Return an optional tensor."""
    value = argument(call, position)
    return value if isinstance(value, Tensor) else None


def tensor(call: OpCall, position: int) -> Tensor:
    """Return a tensor; raise if it was not recorded."""
    value = maybe(call, position)
    if value is None:
        raise NotRecordedError(f"{call.name}: argument {position} is no recorded tensor")
    return value


def listed(call: OpCall, position: int) -> tuple[Tensor, ...]:
    """Return a list of tensors; an empty one was not recorded (profilers omit long lists)."""
    value = argument(call, position)
    if isinstance(value, Tensor):
        return (value,)
    items = [item for item in value or () if isinstance(item, Tensor)] if _many(value) else []
    if not items:
        raise NotRecordedError(f"{call.name}: argument {position} is no recorded tensor list")
    return tuple(items)


def _many(value: Argument) -> bool:
    return isinstance(value, tuple | list)


def integers(call: OpCall, position: int, rank: int | None = None) -> tuple[int, ...]:
    """Return a list of integers; one value stands for all `rank` axes."""
    value = argument(call, position)
    if isinstance(value, int):
        value = (value,)
    if not _many(value) or not all(isinstance(item, int) for item in value):
        raise NotRecordedError(f"{call.name}: argument {position} is no recorded list of integers")
    values = tuple(int(item) for item in value)
    return values * rank if rank and len(values) == 1 else values


def integer(call: OpCall, position: int) -> int:
    """Return an integer; raise if it was not recorded."""
    value = argument(call, position)
    if not isinstance(value, int):
        raise NotRecordedError(f"{call.name}: argument {position} is no recorded integer")
    return int(value)


def flag(call: OpCall, position: int, default: bool = False) -> bool:
    """Return a boolean, or its default if it was not recorded."""
    value = argument(call, position)
    return bool(value) if isinstance(value, int) else default


def mask(call: OpCall, position: int, length: int) -> tuple[bool, ...]:
    """Return which gradients are computed; all if that was not recorded."""
    value = argument(call, position)
    if _many(value) and len(value) == length:
        return tuple(bool(item) for item in value)
    return (True,) * length


def scalar_type(value: Argument) -> str | None:
    """Return the dtype of a recorded ScalarType."""
    if isinstance(value, int) and not isinstance(value, bool):
        return SCALAR_TYPES.get(value)
    return None


def dense(shape: Sequence[int], dtype: str) -> Tensor:
    """Return a dense tensor, as operators allocate their results."""
    return Tensor(shape=tuple(shape), dtype=dtype)


def like(model: Tensor, *, dtype: str | None = None) -> Tensor:
    """Return a new tensor of the same shape."""
    return dense(model.shape, dtype or model.dtype)


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape these shapes broadcast to."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, start=rank - len(shape)):
            if extent != 1:
                if result[axis] not in (1, extent):
                    raise ValueError(f"shapes {shapes} do not broadcast")
                result[axis] = extent
    return tuple(result)


def _category(dtype: str) -> int:
    groups: tuple[Sequence[str], ...] = (("bool",), INTEGERS, FLOATS, COMPLEXES)
    for rank, group in enumerate(groups):
        if dtype in group:
            return rank
    return 1


def _wider(one: str, other: str) -> str:
    """Return the dtype that can represent both, in one category: float16 and bfloat16 give
    float32."""
    if one == other:
        return one
    if {one, other} == {"float16", "bfloat16"}:
        return "float32"
    if {one, other} == {"uint8", "int8"}:
        return "int16"
    return max(one, other, key=lambda dtype: DTYPE_BYTES.get(dtype, 0))


def promote(*operands: Argument) -> str:
    """Return the result dtype of an arithmetic operator by torch's promotion rules.

    Tensors with dimensions decide; a zero-dimensional tensor, then a plain number, only if its
    category (bool, integer, float, complex) is higher.
    """
    shaped = [o.dtype for o in operands if isinstance(o, Tensor) and o.shape]
    zero_dimensional = [o.dtype for o in operands if isinstance(o, Tensor) and not o.shape]
    numbers = [_number_dtype(o) for o in operands if isinstance(o, bool | int | float | complex)]
    result: str | None = None
    for group in (shaped, zero_dimensional, numbers):
        level: str | None = None
        for dtype in group:
            if level is None or _category(dtype) > _category(level):
                level = dtype
            elif _category(dtype) == _category(level):
                level = _wider(level, dtype)
        if level and (result is None or _category(level) > _category(result)):
            result = level
    if result is None:
        raise NotRecordedError("no operand was recorded")
    return result


def _number_dtype(number: complex) -> str:
    if isinstance(number, bool):
        return "bool"
    if isinstance(number, int):
        return "int64"
    return "complex64" if isinstance(number, complex) else "float32"


def vector_unit(dtype: str) -> str | None:
    """Return the unit of elementwise arithmetic: half types are computed in float32."""
    if dtype in ("float64", "complex128"):
        return "vector.float64"
    return "vector.float32" if dtype in FLOATS or dtype in COMPLEXES else None


def arithmetic(dtype: str, operations: float) -> dict[str, float]:
    """Return elementwise FLOPs by unit; integer operations are not counted."""
    unit = vector_unit(dtype)
    return {unit: float(operations)} if unit and operations else {}


def _layout(item: Tensor) -> tuple[object, ...]:
    """Return the extents by stride, equal for transposed views; the shape without strides."""
    if item.storage is None or item.strides is None or len(item.strides) != len(item.shape):
        return item.shape
    axes = zip(item.strides, item.shape, strict=True)
    return tuple(sorted(axis for axis in axes if axis[0] and axis[1] != 1))


def _is_among(item: Tensor, alike: set[int | None]) -> bool:
    """Return whether an input equals one of those with the same storage and layout.

    It does if it is the same object or if the storage is too small for two. The offset of a view is
    not recorded: two halves of one tensor look the same.
    """
    if item.identity is not None and item.identity in alike:
        return True
    return item.storage_bytes is not None and 2 * item.bytes > item.storage_bytes


def _bytes(item: Tensor) -> int:
    """Return its bytes; raise without a dtype, which profilers omit for tensors in a list."""
    if item.dtype not in DTYPE_BYTES:
        raise NotRecordedError(f"a tensor of {item.shape} has no recorded dtype")
    return item.bytes


def read(*items: Tensor | None) -> tuple[float, bool]:
    """Return the distinct bytes of these inputs and whether some may share memory.

    Inputs with equal storage and layout count once if they are known to be one. Those that may be
    two, and inputs with equal shape and dtype but no recorded storage, count each.
    """
    total = 0.0
    identities: dict[tuple[object, ...], set[int | None]] = {}
    upper_bound = False
    for item in items:
        if item is None:
            continue
        alike = identities.setdefault((item.storage, item.dtype, _layout(item)), set())
        if alike and _is_among(item, alike):
            continue
        upper_bound = upper_bound or (bool(alike) and item.elements > 1)
        alike.add(item.identity)
        total += _bytes(item)
    return total, upper_bound


def written(*items: Tensor | None) -> float:
    """Return the bytes of these outputs."""
    return float(sum(_bytes(item) for item in items if item is not None))


def moved(
    *,
    reads: Iterable[Tensor | None] = (),
    writes: Iterable[Tensor | None] = (),
    flops: dict[str, float] | None = None,
    upper_bound: bool = False,
    in_place: bool = False,
) -> Cost:
    """Return the cost of reading and writing these tensors."""
    bytes_read, may_coincide = read(*reads)
    return Cost(
        flops=flops or {},
        bytes_read=bytes_read,
        bytes_written=written(*writes),
        upper_bound=upper_bound or may_coincide,
        in_place=in_place,
    )


def partial(model: Tensor, elements: float) -> Tensor:
    """Return a part of a tensor: the number of touched elements, at most all."""
    return dense((int(min(elements, model.distinct_elements)),), model.dtype)


def product(extents: Iterable[int]) -> int:
    """Return the number of elements of a shape."""
    return math.prod(extents)
