"""An operator call, and its minimum cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from boundby.model.hlo import HloInstruction
from boundby.model.record import Record
from boundby.model.tensor import Tensor

Plain = bool | int | float | str | None


class Cost(Record, frozen=True, kw_only=True):
    """The minimum work of an operator: FLOPs per unit and compulsory traffic.

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
        writing = [cost for cost in (self, other) if cost.bytes_written]
        return Cost(
            flops=flops,
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
            upper_bound=self.upper_bound or other.upper_bound,
            repeated=self.repeated + other.repeated,
            in_place=bool(writing) and all(cost.in_place for cost in writing),
        )


# An argument is a tensor, a list of tensors, a plain value, or None if nothing was recorded. A
# formula knows the kinds from the operator's signature and does not test for them.
if TYPE_CHECKING:
    Argument = Any
else:  # the types that saved files are decoded as
    Argument = Tensor | tuple[Tensor | Plain, ...] | Plain


class OpCall(Record, frozen=True, kw_only=True):
    """One recorded operator call: its name and its arguments in the operator's order.

    `hlo` is the instruction of an XLA program that the call is; its arguments are then the leaves
    of the operands and, after them, those of the result.
    """

    name: str
    args: tuple[Argument, ...] = ()
    hlo: HloInstruction | None = None

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
