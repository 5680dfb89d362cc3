"""The saved machine as experiments use it: rates with intervals, and suitable sizes."""

from __future__ import annotations

from boundby.model import Machine
from boundby.model.errors import CANNOT_MEASURE, BoundbyError
from boundby.model.lab import Interval

_MIB = 1024**2  # definition
# Working sets: twice the last-level cache, so that a second pass finds nothing of the first in it,
# but at most this size.
_LARGEST_SET = {"cuda": 2048 * _MIB, "cpu": 640 * _MIB}
_SMALLEST_SET = {"cuda": 1024 * _MIB, "cpu": 256 * _MIB}


def rate_of(machine: Machine, name: str) -> float:
    """A roof that the law needs."""
    rate = machine.rate(name)
    if not rate:
        raise BoundbyError(
            f"the saved machine has no {name}: boundby machine --remeasure",
            exit_code=CANNOT_MEASURE,
        )
    return rate


def overhead_of(machine: Machine, name: str) -> float:
    """One of the overheads that the law needs, in ns."""
    value: float | None = getattr(machine.overheads, name)
    if not value:
        raise BoundbyError(
            f"the saved machine has no {name}: boundby machine --remeasure",
            exit_code=CANNOT_MEASURE,
        )
    return value


def stream_rate(machine: Machine, pattern: str) -> float:
    """Bytes per second of one access pattern over device memory."""
    return machine.rate(f"memory.dram.{pattern}") or rate_of(machine, "memory.dram")


def reading_rate(machine: Machine) -> float:
    """Bytes per second read: the roof itself, if reading reached it."""
    roof = machine.roof("memory.dram")
    if roof is not None and roof.note == "read":
        return roof.value
    return stream_rate(machine, "read")


def product_rate(machine: Machine, dtype: str) -> Interval:
    """FLOP/s of products: from the sustained rate to that of a short burst."""
    burst = rate_of(machine, f"matmul.{dtype}")
    sustained = min(burst, machine.rate(f"matmul.{dtype}.sustained") or burst)
    return Interval(low=sustained, value=(sustained * burst) ** 0.5, high=burst)


def streamed_bytes(machine: Machine, *, quick: bool) -> int:
    """A working set in device memory, not in a cache."""
    capacity = max((level.capacity or 0 for level in machine.levels), default=0)
    wanted = max(2 * capacity, _SMALLEST_SET[machine.kind])
    size = min(wanted, _LARGEST_SET[machine.kind], (machine.memory_bytes or wanted * 8) // 8)
    return size // (4 if quick else 1) // _MIB * _MIB


def product_dtype(machine: Machine) -> str:
    """The dtype of products: bfloat16 on a GPU, float32 on a CPU."""
    return "bfloat16" if machine.kind == "cuda" else "float32"


BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}
