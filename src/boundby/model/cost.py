"""An operator call, and its minimum cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from boundby.model.record import Record


class Cost(Record, frozen=True, kw_only=True):
    """The least work of an operator: FLOPs per unit and compulsory traffic.

    A unit is the name of the roof that limits it ("matmul.bfloat16", "vector.float32").
    `upper_bound` marks traffic that may be smaller, because inputs could share storage. `repeated`:
    the FLOPs that recompute values which were not kept. `in_place`: all written elements were read
    before, which is faster on a CPU.
    """

    flops: dict[str, float] = {}
    bytes_read: float = 0
    bytes_written: float = 0
    upper_bound: bool = False
    repeated: float = 0
    in_place: bool = False

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written

    @property
    def footprint(self) -> float:
        """Return the bytes of memory it touches, each counted once."""
        return self.bytes_read if self.in_place else self.bytes

    @property
    def total_flops(self) -> float:
        return sum(self.flops.values())

    def __add__(self, other: Cost) -> Cost:
        flops = dict(self.flops)
        for unit, amount in other.flops.items():
            flops[unit] = flops.get(unit, 0) + amount
        writing = [one for one in (self, other) if one.bytes_written]
        return Cost(
            flops=flops,
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
            upper_bound=self.upper_bound or other.upper_bound,
            repeated=self.repeated + other.repeated,
            in_place=bool(writing) and all(one.in_place for one in writing),
        )


class Tensor(Record, frozen=True, kw_only=True):
    """A tensor argument of an operator, as a profiler records it.

    `storage` is the address of its storage, not of the tensor within it; `storage_bytes` is the
    size of the storage. Tensors of one call with the same `identity` are the same tensor.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    storage: int | None = None
    storage_bytes: int | None = None
    identity: int | None = None

    @property
    def elements(self) -> int:
        """Return the number of elements, including repeated (stride-0) axes."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def distinct_elements(self) -> int:
        """Return the number of distinct elements in memory: a stride-0 axis counts once.

        Overlapping windows have at most the elements between the first and the last.
        """
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.elements
        total, reach = 1, 1
        for extent, stride in zip(self.shape, self.strides, strict=True):
            total *= extent if stride or not extent else 1
            reach += (extent - 1) * stride
        return min(total, reach) if total else 0

    @property
    def bytes(self) -> int:
        """Return the bytes of distinct memory."""
        return self.distinct_elements * DTYPE_BYTES.get(self.dtype, 0)


DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}

# An argument is a tensor, a list of tensors, a plain value, or None if nothing was recorded.
Argument = Any


class OpCall(Record, frozen=True, kw_only=True):
    """One recorded operator call: its name and its arguments in the operator's order."""

    name: str
    args: tuple[Argument, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors among the arguments, with lists flattened."""
        return tuple(self._tensors())

    def _tensors(self) -> Iterator[Tensor]:
        for argument in self.args:
            if isinstance(argument, Tensor):
                yield argument
            elif isinstance(argument, tuple):
                yield from (item for item in argument if isinstance(item, Tensor))
