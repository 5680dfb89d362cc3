"""The limits of one device: roofs, curves, overheads, each with its source."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.model.assumptions.device import CACHE_REACH
from boundby.model.cost import Cost
from boundby.model.record import SCHEMA, Record
from boundby.model.timeline import Ints

Floats = npt.NDArray[np.float64]

Source = Literal["measured", "datasheet"]


class Roof(Record, frozen=True, kw_only=True):
    """The highest rate this device reaches."""

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


# Separates the short kernels from the long ones whose gaps are measured: 3 and 20 us on an H200.
_LONG_KERNEL_NS = 8_000


class Overheads(Record, frozen=True, kw_only=True):
    """The costs of issuing work, in ns each; None if not applicable."""

    eager_op_ns: float | None = None
    trained_op_ns: float | None = None  # with autograd: recording, and its backward node
    launch_ns: float | None = None
    graph_kernel_ns: float | None = None
    graph_gap_ns: float | None = None  # between kernels of a replayed graph
    long_graph_gap_ns: float | None = None  # the same after long kernels
    compiled_call_ns: float | None = None
    compiled_kernel_ns: float | None = None
    trained_kernel_ns: float | None = None  # the same in a compiled forward and backward
    sync_ns: float | None = None
    shortest_kernel_ns: float | None = None
    kernel_gap_ns: float | None = None  # between queued kernels
    long_kernel_gap_ns: float | None = None  # the same after long kernels
    memory_t0_ns: float | None = None
    python_add_ns: float | None = None

    def gap_ns(self, kernels_ns: Ints | Floats, *, graphed: bool = False) -> float | None:
        """Return the mean gap between kernels of these durations; in a graph it may be negative."""
        after_short = self.graph_gap_ns if graphed else self.kernel_gap_ns
        after_long = self.long_graph_gap_ns if graphed else self.long_kernel_gap_ns
        if after_short is None or after_long is None or not len(kernels_ns):
            return after_short
        long = float((kernels_ns >= _LONG_KERNEL_NS).mean())
        return long * after_long + (1 - long) * after_short


# Costs of the host, which scale with its Python speed.
_HOST_OVERHEADS = (
    "eager_op_ns",
    "trained_op_ns",
    "launch_ns",
    "compiled_call_ns",
    "compiled_kernel_ns",
    "trained_kernel_ns",
    "sync_ns",
    "python_add_ns",
)
# Links whose bytes the host copies into memory that the device can access.
_HOST_LINKS = ("host_link.h2d.pageable", "host_link.d2h.pageable")
HOST_COSTS = (*_HOST_OVERHEADS, *_HOST_LINKS)

Bound = Literal["compute", "memory", "small", "network", "host_link", "python", "unknown"]


def _along(curve: list[Point], size: float) -> float:
    """Return the time at a size, interpolated on a log-log scale; of equal sizes the fastest.

    Neighbouring points may be a factor of eight apart.
    """
    fastest: dict[float, float] = {}
    for point in curve:
        fastest[point.size] = min(point.ns, fastest.get(point.size, point.ns))
    sizes = sorted(fastest)
    times = [fastest[at] for at in sizes]
    return float(np.exp(np.interp(np.log(max(size, 1.0)), np.log(sizes), np.log(times))))


# Bytes per element of a float32 elementwise chain: one read and one write.
_POINTWISE_BYTES = 8

_VECTOR = "vector."
# Suffix of the roof for passes that write where they read.
UPDATE = "update"
_WIDE = "matmul.float32"
_WIDENED = ("matmul.bfloat16", "matmul.float16")


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
    # The share of the measurement's runnable time without a core.
    wait_share: float | None = None
    under_load: bool = False  # if that share was too large: not saved, and measured again

    def roof(self, name: str) -> Roof | None:
        return next((roof for roof in self.roofs if roof.name == name), None)

    def with_host_slowdown(self, factor: float) -> Machine:
        """Return the machine with all costs of its host multiplied by `factor`."""
        slower = {
            name: value * factor
            for name in _HOST_OVERHEADS
            if (value := getattr(self.overheads, name)) is not None
        }
        roofs = [
            msgspec.structs.replace(roof, value=roof.value / factor)
            if roof.name in _HOST_LINKS
            else roof
            for roof in self.roofs
        ]
        overheads = msgspec.structs.replace(self.overheads, **slower)
        return msgspec.structs.replace(self, overheads=overheads, roofs=roofs)

    def rate(self, name: str) -> float | None:
        roof = self.roof(name)
        return roof.value if roof else None

    def memory_roof(self, touched: float) -> Roof | None:
        """Return the roof for an operator that touches this many bytes."""
        passes = self._passes(touched)
        return max(passes, key=lambda one: one[1])[0] if passes else self.roof("memory.dram")

    def _passes(self, touched: float) -> list[tuple[Roof, float]]:
        """Return which memory levels serve these bytes, and how many each, nearest first.

        An inner cache serves at most its capacity; the last-level cache may also hold the results
        of earlier operators.
        """
        cached = [level for level in self.levels if level.capacity is not None]
        passes: list[tuple[Roof, float]] = []
        remaining = touched
        for level in self.levels:
            roof = self.roof(level.roof)
            if roof is None:
                continue
            is_inner = level.capacity is not None and level is not cached[-1]
            reach = (1 if is_inner else CACHE_REACH.value) * (level.capacity or 0)
            if level.capacity is None or touched <= reach:
                return [*passes, (roof, remaining)]
            if is_inner:
                passes.append((roof, float(level.capacity)))
                remaining -= level.capacity
        dram = self.roof("memory.dram")
        return [*passes, (dram, remaining)] if dram else []

    def compute_ns(self, cost: Cost) -> float | None:
        """Return the time on the arithmetic units; None if a needed matrix unit has no roof.

        Elementwise arithmetic is far below its roof on every device: if that roof was not measured,
        memory time alone counts.
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
        """Return the roof of a unit: for 16-bit products at least that of float32, to which they
        can be widened."""
        rate = self.rate(unit)
        return max(rate, self.rate(_WIDE) or 0.0) if rate and unit in _WIDENED else rate

    def memory_ns(self, cost: Cost) -> float | None:
        """Return the time to move the compulsory bytes; None without a memory roof."""
        if not cost.bytes:
            return 0.0
        if cost.in_place and self.rate(f"memory.dram.{UPDATE}"):
            return self._updating_ns(cost)
        passes = self._passes(cost.bytes)
        return sum(size / roof.value * 1e9 for roof, size in passes) if passes else None

    def _updating_ns(self, cost: Cost) -> float:
        """Return the time of an in-place update: on a CPU the written line is already cached."""
        twice = cost.bytes / cost.footprint
        rates = (
            (self.rate(f"{roof.name}.{UPDATE}") or roof.value, size)
            for roof, size in self._passes(cost.footprint)
        )
        return sum(twice * size / rate * 1e9 for rate, size in rates)

    def floor(self, cost: Cost) -> float | None:
        """Return the roofline minimum of a cost, in ns."""
        compute, memory = self.compute_ns(cost), self.memory_ns(cost)
        return None if compute is None or memory is None else max(compute, memory)

    def copy_ns(self, size: float) -> float | None:
        """Return the time of a plain copy of this many bytes, from its curve or else the roof."""
        curve = self.curves.get("memory.copy")
        if not curve or size > curve[-1].size:
            rate = curve[-1].value if curve else self.rate("memory.dram")
            return size / rate * 1e9 if rate else None
        return _along(curve, size)

    def product_ns(self, unit: str, flops: float) -> float | None:
        """Return the best time of a product with these FLOPs, from its curve or else the roof."""
        curve = self.curves.get(unit)
        if not curve or flops > curve[-1].size:
            rate = self.rate(unit)
            return flops / rate * 1e9 if rate else None
        return _along(curve, flops)

    def ridge(self, unit: str) -> float | None:
        """Return the FLOPs per byte above which work on this unit is compute-bound."""
        rate, memory = self.rate(unit), self.rate("memory.dram")
        return rate / memory if rate and memory else None

    @property
    def pointwise_ops(self) -> float | None:
        """Return the operations per element from which a float32 chain is compute-bound."""
        ridge = self.ridge("vector.float32")
        return ridge * _POINTWISE_BYTES if ridge else None

    @property
    def critical_batch(self) -> float | None:
        """Return the rows at which a bfloat16 product with large weights becomes compute-bound.

        2BDF operations over the 2DF bytes of the weights: an intensity of B.
        """
        return self.ridge("matmul.bfloat16")

    @property
    def flops_per_python_add(self) -> float | None:
        """Return the FLOPs of the fastest unit (16 bits or more) during one Python addition."""
        rates = (r.value for r in self.roofs if r.unit == "FLOP/s" and "float8" not in r.name)
        fastest = max(rates, default=None)
        add_ns = self.overheads.python_add_ns
        return fastest * add_ns / 1e9 if fastest and add_ns else None

    def bound(self, cost: Cost) -> Bound:
        """Return what bounds a cost; `small` if its minimum is below the shortest kernel."""
        compute, memory = self.compute_ns(cost), self.memory_ns(cost)
        if compute is None or memory is None:
            return "unknown"
        if max(compute, memory) < (self.overheads.shortest_kernel_ns or 0):
            return "small"
        return "compute" if compute > memory else "memory"
