"""What an operator call is, and what it must cost at least."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from boundby.model.record import Record


class Cost(Record, frozen=True, kw_only=True):
    """What an operator must do at least: operations per unit, and compulsory traffic.

    A unit is the name of the roof that limits it ("matmul.bfloat16", "vector.float32").
    `upper_bound` marks traffic that may be smaller: inputs that could share storage. `repeated` are
    those of the operations that the model does not ask for: values computed again, not kept.
    `in_place`: all that is written was read before, which a CPU's memory does faster.
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
        """How much memory it touches, however often."""
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
    """A tensor as a profiler saw it go into an operator.

    `storage` is where its storage begins, not where in it this tensor does, and `storage_bytes`
    how much it holds. Tensors of one call that have one `identity` are one and the same.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    storage: int | None = None
    storage_bytes: int | None = None
    identity: int | None = None

    @property
    def elements(self) -> int:
        """How many elements it shows, a repeated (stride-0) axis included."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def distinct_elements(self) -> int:
        """How many different elements of memory it shows: a stride-0 axis counts once.

        Windows that overlap show no more than lies between the first and the last element.
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
        """The distinct memory behind it."""
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

# An argument is a tensor, a list of tensors, a plain value, or None where nothing was recorded.
Argument = Any


class OpCall(Record, frozen=True, kw_only=True):
    """One operator call as recorded: its name and its arguments, in the operator's own order."""

    name: str
    args: tuple[Argument, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors among the arguments, lists flattened."""
        return tuple(self._tensors())

    def _tensors(self) -> Iterator[Tensor]:
        for argument in self.args:
            if isinstance(argument, Tensor):
                yield argument
            elif isinstance(argument, tuple):
                yield from (item for item in argument if isinstance(item, Tensor))
