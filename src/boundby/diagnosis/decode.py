"""The limit of a decode step: the bytes that it must read over the memory bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from boundby.model import DTYPE_BYTES, Machine, Note, OpCall, Tensor, Timeline, units
from boundby.model.diagnosis import DecodeLimit
from boundby.model.weights import ModelWeights
from boundby.step.inference import infers
from boundby.step.op_record import OpRecord


def decode_limit(
    weights: ModelWeights,
    timeline: Timeline,
    op_records: Sequence[OpRecord],
    machine: Machine,
    *,
    wall_ns: float,
    kind: str,
    ranks: int = 1,
) -> DecodeLimit | Note:
    """The minimum time of the step; a note if the model's weights do not limit it.

    Passes are counted by attention operators, one per layer. The tokens of a pass are the fewest
    rows of a product with an input as wide as the model; if unknown, one token is assumed.
    """
    rate = machine.rate("memory.dram")
    if rate is None:
        return _unused("the bandwidth of the device's memory is unknown")
    if kind == "prefill" or (not infers(timeline) and len(timeline.calls)):
        return _unused("the step is not one of decoding")
    tokens, dtype_bytes = _products(weights, timeline)
    if tokens is None and any(_multiplies(call.name) for call in timeline.calls):
        return _unused(f"no product of the step is as wide as {weights.name} ({weights.hidden})")
    if tokens is not None and tokens > (machine.critical_batch or math.inf):
        return _unused(f"{tokens} tokens at a time are limited by arithmetic")
    attention = [record for record in op_records if record.call >= 0 and _attends(record)]
    passes = 1
    if attention and len(attention) % weights.layers == 0:
        passes = len(attention) // weights.layers
    read = passes * weights.read_bytes(tokens or 1, dtype_bytes or weights.dtype_bytes) / ranks
    attention_bytes = [record.cost.bytes for record in attention if record.cost is not None]
    cached = sum(attention_bytes) if attention_bytes else None
    limit_ns = (read + (cached or 0.0)) / rate * 1e9
    if limit_ns > _LONGEST * wall_ns:
        return _unused(
            f"reading the weights of {weights.name} takes at least {units.time(limit_ns)}, longer "
            "than the step: it is another model, or divided among more devices"
        )
    return DecodeLimit(
        model=weights.name,
        passes=passes,
        tokens=tokens,
        experts=weights.experts_reached(tokens or 1) if weights.experts else None,
        ranks=ranks,
        weight_bytes=read,
        kv_bytes=cached,
        limit_ns=limit_ns,
        share=limit_ns / wall_ns if wall_ns > 0 else 0.0,
    )


# A step's time without the profiler is an estimate.
_LONGEST = 1.5


def _attends(record: OpRecord) -> bool:
    return record.kernel_class == "attention" or "attention" in record.name.lower()


def _unused(why: str) -> Note:
    return Note(code="model-not-used", text=f"no decode limit: {why}")


def _products(weights: ModelWeights, timeline: Timeline) -> tuple[int | None, int | None]:
    """The fewest rows multiplied by a weight of the model, and the bytes of one of its elements."""
    products = [
        product
        for call in timeline.calls
        if (product := _product(call, weights.hidden)) is not None
    ]
    if not products:
        return None, None
    return min(rows for rows, _ in products), min(size for _, size in products)


def _product(call: OpCall, hidden: int) -> tuple[int, int] | None:
    """Rows and bytes per element of rows [..., hidden] times a matrix [hidden, n], or its
    transpose."""
    wide = [tensor for tensor in call.tensors if len(tensor.shape) > 1]
    if call.hlo is not None or len(wide) != 2:
        return None
    rows, matrix = wide
    if rows.shape[-1] != hidden or len(matrix.shape) != 2 or hidden not in matrix.shape:
        return None
    if not _multiplies(call.name):
        return None
    size = DTYPE_BYTES.get(matrix.dtype)
    return (_leading(rows), size) if size else None


def _multiplies(name: str) -> bool:
    return name.rpartition("::")[2] in ("mm", "addmm", "matmul", "linear", "_scaled_mm")


def _leading(tensor: Tensor) -> int:
    return math.prod(tensor.shape[:-1])
