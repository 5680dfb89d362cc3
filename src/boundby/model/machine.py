"""What one device can do: roofs, curves, overheads, each with its source."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.model.cost import Cost
from boundby.model.record import SCHEMA, Record
from boundby.model.timeline import Ints

Floats = npt.NDArray[np.float64]

Source = Literal["measured", "datasheet"]


class Roof(Record, frozen=True, kw_only=True):
    """A rate that nothing on this device exceeds."""

    name: str
    value: float
    unit: str
    source: Source
    datasheet: float | None = None
    spread: float | None = None  # interquartile range over median of the samples behind it
    note: str | None = None


class MemoryLevel(Record, frozen=True, kw_only=True):
    """A level of the memory hierarchy; `capacity` None is the last one, device memory."""

    roof: str
    capacity: int | None


class Point(Record, frozen=True, kw_only=True):
    """One measured point of a curve: at this size, this rate, this time."""

    size: float
    value: float
    ns: float
    label: str = ""


# Between the short kernels and the long ones whose gaps are measured: on an H200 some 3 and 20 us.
_LONG_KERNEL_NS = 8_000


class Overheads(Record, frozen=True, kw_only=True):
    """What it costs to ask for work, in ns each; None where it does not apply."""

    eager_op_ns: float | None = None
    trained_op_ns: float | None = None  # with autograd: recorded, and its node in backward
    launch_ns: float | None = None
    graph_kernel_ns: float | None = None
    graph_gap_ns: float | None = None  # between kernels of a replayed graph
    long_graph_gap_ns: float | None = None  # there, after long ones
    compiled_call_ns: float | None = None
    compiled_kernel_ns: float | None = None
    trained_kernel_ns: float | None = None  # the same in a compiled forward and backward
    sync_ns: float | None = None
    shortest_kernel_ns: float | None = None
    kernel_gap_ns: float | None = None  # between kernels that wait in a queue
    long_kernel_gap_ns: float | None = None  # there, after long ones
    memory_t0_ns: float | None = None
    python_add_ns: float | None = None

    def gap_ns(self, kernels_ns: Ints | Floats, *, graphed: bool = False) -> float | None:
        """Between kernels that take so long, on the average: in a graph it may be negative."""
        after_short = self.graph_gap_ns if graphed else self.kernel_gap_ns
        after_long = self.long_graph_gap_ns if graphed else self.long_kernel_gap_ns
        if after_short is None or after_long is None or not len(kernels_ns):
            return after_short
        long = float((kernels_ns >= _LONG_KERNEL_NS).mean())
        return long * after_long + (1 - long) * after_short


# What is the host's own: it grows as its Python does.
_HOSTS_OVERHEADS = (
    "eager_op_ns",
    "trained_op_ns",
    "launch_ns",
    "compiled_call_ns",
    "compiled_kernel_ns",
    "trained_kernel_ns",
    "sync_ns",
    "python_add_ns",
)
# Links whose bytes the host itself moves, to memory that the device can reach.
_HOSTS_LINKS = ("host_link.h2d.pageable", "host_link.d2h.pageable")
HOSTS_OWN = (*_HOSTS_OVERHEADS, *_HOSTS_LINKS)

Bound = Literal["compute", "memory", "small", "network", "host_link", "unknown"]


def _along(curve: list[Point], size: float) -> float:
    """The time at a size, between the curve's points; points of one size: the fastest.

    Between two it grows by as much for each doubling: they may be eightfold apart.
    """
    fastest: dict[float, float] = {}
    for point in curve:
        fastest[point.size] = min(point.ns, fastest.get(point.size, point.ns))
    sizes = sorted(fastest)
    times = [fastest[at] for at in sizes]
    return float(np.exp(np.interp(np.log(max(size, 1.0)), np.log(sizes), np.log(times))))


# Bytes a float32 pointwise chain moves per element: it reads one and writes one.
_POINTWISE_BYTES = 8

_VECTOR = "vector."
# A pass over memory that writes where it reads: a roof of its own.
UPDATE = "update"
_WIDE = "matmul.float32"
_WIDENED = ("matmul.bfloat16", "matmul.float16")

# An operator that touches more than this many times the last cache's size cannot live in it: in
# real steps smaller ones were seen to find their inputs still cached (25 MB at 5.4 TB/s, H200).
CACHE_REACH = 4


class Machine(Record, frozen=True, kw_only=True):
    """One device's roofs, curves and overheads, each with its source."""

    schema: int = SCHEMA
    device: str
    kind: str  # "cpu", "cuda"
    chip: str | None = None  # the datasheet's name for it
    vendor: str | None = None
    driver: str | None = None
    torch: str | None = None
    threads: int | None = None
    measured_at: str | None = None  # ISO 8601, UTC
    quick: bool = False
    memory_bytes: int | None = None
    roofs: list[Roof] = []
    levels: list[MemoryLevel] = []
    curves: dict[str, list[Point]] = {}
    overheads: Overheads = Overheads()
    warnings: list[str] = []

    def roof(self, name: str) -> Roof | None:
        return next((roof for roof in self.roofs if roof.name == name), None)

    def at_pace(self, factor: float) -> Machine:
        """The machine whose host takes this many times as long for everything it does."""
        slower = {
            name: value * factor
            for name in _HOSTS_OVERHEADS
            if (value := getattr(self.overheads, name)) is not None
        }
        roofs = [
            msgspec.structs.replace(roof, value=roof.value / factor)
            if roof.name in _HOSTS_LINKS
            else roof
            for roof in self.roofs
        ]
        overheads = msgspec.structs.replace(self.overheads, **slower)
        return msgspec.structs.replace(self, overheads=overheads, roofs=roofs)

    def rate(self, name: str) -> float | None:
        roof = self.roof(name)
        return roof.value if roof else None

    def memory_roof(self, touched: float) -> Roof | None:
        """The roof for an operator that touches this much memory: of where most of it lies."""
        passes = self._passes(touched)
        return max(passes, key=lambda one: one[1])[0] if passes else self.roof("memory.dram")

    def _passes(self, touched: float) -> list[tuple[Roof, float]]:
        """From where an operator has what it touches, and how much of it, nearest first.

        Of the caches before the last, no more than fits; the last one may also hold what an
        operator before this one has left there.
        """
        cached = [level for level in self.levels if level.capacity is not None]
        passes: list[tuple[Roof, float]] = []
        left = touched
        for level in self.levels:
            roof = self.roof(level.roof)
            if roof is None:
                continue
            is_inner = level.capacity is not None and level is not cached[-1]
            reach = (1 if is_inner else CACHE_REACH) * (level.capacity or 0)
            if level.capacity is None or touched <= reach:
                return [*passes, (roof, left)]
            if is_inner:
                passes.append((roof, float(level.capacity)))
                left -= level.capacity
        dram = self.roof("memory.dram")
        return [*passes, (dram, left)] if dram else []

    def compute_ns(self, cost: Cost) -> float | None:
        """Time on the arithmetic units; None when a matrix unit it needs has no roof.

        Pointwise arithmetic stays far below its roof at the bandwidth of any device: where that
        roof was not measured, the memory's alone decides.
        """
        total = 0.0
        for unit, amount in cost.flops.items():
            if not amount:
                continue
            rate = self.reach(unit)
            if not rate and unit.startswith(_VECTOR):
                continue
            if not rate:
                return None
            total = max(total, amount / rate * 1e9)
        return total

    def reach(self, unit: str) -> float | None:
        """The roof over a unit's products. Numbers of sixteen bits can be widened: what was
        measured in them is no roof where float32 is faster."""
        rate = self.rate(unit)
        return max(rate, self.rate(_WIDE) or 0.0) if rate and unit in _WIDENED else rate

    def memory_ns(self, cost: Cost) -> float | None:
        """Time to move its compulsory bytes; None when the memory has no roof."""
        if not cost.bytes:
            return 0.0
        if cost.in_place and self.rate(f"memory.dram.{UPDATE}"):
            return self._updating_ns(cost)
        passes = self._passes(cost.bytes)
        return sum(size / roof.value * 1e9 for roof, size in passes) if passes else None

    def _updating_ns(self, cost: Cost) -> float:
        """What is written where it was read costs a CPU less: its line is in the cache already."""
        twice = cost.bytes / cost.footprint
        rates = (
            (self.rate(f"{roof.name}.{UPDATE}") or roof.value, size)
            for roof, size in self._passes(cost.footprint)
        )
        return sum(twice * size / rate * 1e9 for rate, size in rates)

    def floor(self, cost: Cost) -> float | None:
        """The roofline time of a cost, in ns: nothing on this device does it faster."""
        compute, memory = self.compute_ns(cost), self.memory_ns(cost)
        return None if compute is None or memory is None else max(compute, memory)

    def copy_ns(self, size: float) -> float | None:
        """What a plain copy that moves this much takes, from its curve; from the roof without."""
        curve = self.curves.get("memory.copy")
        if not curve or size > curve[-1].size:
            rate = curve[-1].value if curve else self.rate("memory.dram")
            return size / rate * 1e9 if rate else None
        return _along(curve, size)

    def product_ns(self, unit: str, flops: float) -> float | None:
        """What a product of this much arithmetic takes at best, from its curve or its roof."""
        curve = self.curves.get(unit)
        if not curve or flops > curve[-1].size:
            rate = self.rate(unit)
            return flops / rate * 1e9 if rate else None
        return _along(curve, flops)

    def ridge(self, unit: str) -> float | None:
        """FLOP per byte of device memory past which work on this unit is compute-bound."""
        rate, memory = self.rate(unit), self.rate("memory.dram")
        return rate / memory if rate and memory else None

    @property
    def pointwise_ops(self) -> float | None:
        """Operations per element before a float32 pointwise chain stops being memory-bound."""
        ridge = self.ridge("vector.float32")
        return ridge * _POINTWISE_BYTES if ridge else None

    @property
    def critical_batch(self) -> float | None:
        """Rows at which a bfloat16 product with large weights becomes compute-bound.

        2BDF operations over the 2DF bytes of the weights: an intensity of B.
        """
        return self.ridge("matmul.bfloat16")

    @property
    def flops_per_python_add(self) -> float | None:
        """What the device's fastest unit of 16 bits or more does while Python adds two numbers."""
        rates = (r.value for r in self.roofs if r.unit == "FLOP/s" and "float8" not in r.name)
        fastest = max(rates, default=None)
        add_ns = self.overheads.python_add_ns
        return fastest * add_ns / 1e9 if fastest and add_ns else None

    def bound(self, cost: Cost) -> Bound:
        """Which roof it hits; `small` when its floor is under the shortest kernel there is."""
        compute, memory = self.compute_ns(cost), self.memory_ns(cost)
        if compute is None or memory is None:
            return "unknown"
        if max(compute, memory) < (self.overheads.shortest_kernel_ns or 0):
            return "small"
        return "compute" if compute > memory else "memory"
