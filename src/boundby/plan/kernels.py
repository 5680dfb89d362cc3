"""Time of one operator on one chip: its cost from `boundby.ops`, the roofline, an efficiency.

The efficiency of a product follows from how its tiles fill the chip, that of attention from its
published curve, that of memory-bound operators from the bandwidth they usually reach.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from boundby import ops
from boundby.model import Cost, OpCall, Tensor
from boundby.model.errors import BoundbyError
from boundby.plan import assumptions
from boundby.plan.chips import Target

_S = 1e9  # ns


class Kernel(NamedTuple):
    """One operator's time on the device, its roofline minimum and its arithmetic."""

    ns: float
    minimum_ns: float
    flops: float


def tensor(*shape: int, dtype: str) -> Tensor:
    return Tensor(shape=tuple(shape), dtype=dtype)


@functools.lru_cache(maxsize=100_000)
def _cost(call: OpCall) -> Cost:
    cost = ops.cost(call)
    if cost is None:
        raise BoundbyError(f"no cost formula fits {call.name}")
    return cost


def product_call(m: int, k: int, n: int, dtype: str, groups: int = 1) -> OpCall:
    """The operator of [m, k] x [k, n], or of `groups` such products on m rows each."""
    if groups > 1:
        return OpCall(
            name="aten::_grouped_mm",
            args=(
                tensor(m * groups, k, dtype=dtype),
                tensor(groups, k, n, dtype=dtype),
                tensor(groups, dtype="int32"),
            ),
        )
    name = "aten::_scaled_mm" if dtype in ("float8", "float4", "int8") else "aten::mm"
    return OpCall(name=name, args=(tensor(m, k, dtype=dtype), tensor(k, n, dtype=dtype)))


@functools.lru_cache(maxsize=100_000)
def product(
    target: Target,
    m: int,
    k: int,
    n: int,
    dtype: str,
    groups: int = 1,
    *,
    alone: bool = False,
    tuned: bool = False,
    even: bool = False,
    sums_rows: bool = False,
) -> Kernel:
    """A matrix product: the larger of its arithmetic, tile by tile, and its traffic.

    Time = max(2 m k n / (sustained rate * share of the tiles), bytes / bandwidth) + a fixed part.
    `alone` is a product repeated by itself; in a step, products reach less of the best rate.
    `even` groups have equal rows: a batch. `sums_rows` is a weight's gradient, whose inner extent
    are the tokens.
    """
    m, k, n = max(1, m), max(1, k), max(1, n)
    narrow = dtype == "float4"
    cost = _cost(product_call(m, k, n, "float8" if narrow else dtype, groups))
    unit = f"matmul.{dtype}"
    size = cost.bytes * (0.5 if narrow else 1.0)
    flops = cost.total_flops
    memory = size / target.memory_rate * _S
    minimum = max(flops / target.peak(unit) * _S, memory)
    rate = target.sustained_rate(unit)
    if not alone:
        rate *= assumptions.series_share(unit, tuned=tuned and groups == 1)
    if groups > 1 and target.is_tpu and not even:
        rate *= assumptions.TPU_GROUPED_SHARE
    if not target.is_tpu:
        rate *= alignment_share(*((m, n) if sums_rows else (k, n)))
    busy = flops / (rate * tile_share(target, m, k, n, groups)) * _S
    ns = max(busy, memory / assumptions.STREAM_MEMORY_SHARE) + _fixed_ns(target)
    return Kernel(ns=ns, minimum_ns=minimum, flops=flops)


def weight_product(
    target: Target,
    m: int,
    k: int,
    n: int,
    weights: str,
    *,
    group: int = assumptions.INT4_GROUP,
    compute: str = "bfloat16",
    most_bytes_per_s: float | None = None,
) -> Kernel:
    """A product of activations with weights kept in fewer bits, of few rows: a decode step.

    Weights are read once: the larger of that and the arithmetic in `compute`, and a fixed part.
    int4 weights have two 16-bit scales per `group`. Unpacking them on the vector units adds to it
    while rows are few.
    """
    m, k, n = max(1, m), max(1, k), max(1, n)
    x = tensor(m, k, dtype="bfloat16")
    if weights == "int4":
        groups = max(1, k // group)
        scales = tensor(groups, n, 2, dtype="bfloat16")
        packed = tensor(n, max(1, k // 2), dtype="uint8")
        args: tuple[object, ...] = (x, packed, group, scales)
        call = OpCall(name="aten::_weight_int4pack_mm", args=args)
    elif weights in ("int8", "float8"):
        scales = tensor(n, dtype="bfloat16")
        args = (x, tensor(n, k, dtype="int8"), scales)
        call = OpCall(name="aten::_weight_int8pack_mm", args=args)
    else:
        call = product_call(m, k, n, weights)
    cost = _cost(call)
    unit = f"matmul.{compute}" if weights != "bfloat16" else "matmul.bfloat16"
    memory = cost.bytes / target.memory_rate * _S
    busy = cost.total_flops / target.sustained_rate(unit) * _S
    read = cost.bytes / _stream_rate(target, most_bytes_per_s) * _S
    if weights in ("int4", "int8") and compute not in ("int8", "float4"):
        vector = target.machine.rate("vector.float32")
        read += k * n * assumptions.UNPACK_FLOPS / vector * _S if vector else 0.0
    ns = max(busy, read) + assumptions.COMPILED_KERNEL_FIXED_NS
    return Kernel(ns=ns, minimum_ns=memory, flops=cost.total_flops)


@functools.lru_cache(maxsize=100_000)
def _gpu_tile_share(units: int, m: int, n: int, groups: int) -> float:
    side = assumptions.GPU_TILE
    tiles = math.ceil(m / side) * math.ceil(n / side) * groups
    waves = math.ceil(tiles / units)
    return groups * m * n / (waves * units * side**2)


def alignment_share(*extents: int) -> float:
    """Share of the rate of a product whose arrays have rows of these many elements.

    Rows that begin at no multiple of 16 bytes are loaded in narrow pieces.
    """
    least = min(math.gcd(extent, assumptions.ALIGNED) for extent in extents)
    return assumptions.NARROW_LOAD_SHARE.get(least, 1.0)


def tile_share(target: Target, m: int, k: int, n: int, groups: int = 1) -> float:
    """Share of the sustained rate: padding to tiles, and a last wave that is not full."""
    if not target.is_tpu:
        return _gpu_tile_share(target.fabric.units, m, n, groups)
    wide = target.name in ("TPU v6e", "TPU v7x")
    side = assumptions.TPU_WIDE_TILE if wide else assumptions.TPU_TILE
    padded = math.prod(math.ceil(extent / side) * side for extent in (k, n))
    rows = math.ceil(m / 8) * 8
    return m * k * n / (rows * padded)


def pointwise(target: Target, call: OpCall, *, fused: float = 1.0) -> Kernel:
    """A memory-bound operator: its compulsory bytes at the bandwidth such kernels reach."""
    cost = _cost(call)
    memory = cost.bytes / target.memory_rate * _S
    ns = memory * fused / assumptions.POINTWISE_MEMORY_SHARE + _fixed_ns(target)
    return Kernel(ns=ns, minimum_ns=memory, flops=0.0)


def stream(target: Target, size: float) -> Kernel:
    """A pass over so many bytes, read once: weights and KV cache of a decode step."""
    memory = size / target.memory_rate * _S
    return Kernel(ns=memory / assumptions.STREAM_MEMORY_SHARE, minimum_ns=memory, flops=0.0)


def _stream_rate(target: Target, most: float | None) -> float:
    rate = target.memory_rate * assumptions.STREAM_MEMORY_SHARE
    return min(rate, most) if most else rate


def _fixed_ns(target: Target) -> float:
    compiled = target.is_tpu or target.machine.vendor == "aws"
    return assumptions.COMPILED_KERNEL_FIXED_NS if compiled else assumptions.KERNEL_FIXED_NS
