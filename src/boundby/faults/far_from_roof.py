"""Kernels take several times their roofline minimum.

What it looks for
    Operators, at one line and with one set of shapes, that take a considerable share of the step
    and run below 40% of their roof while others of their class on this machine run faster.
    Operators that another fault covers (the optimizer, odd dimensions, attention scores) are not
    counted.

Why it costs time
    The roofline minimum is the time that the arithmetic or the bytes need at least. A kernel far
    above it reads memory in an unfavourable order (a transpose: 7 times its minimum on an H200),
    reads it twice (a softmax in bfloat16: 3 times), adds with atomics (gradients of an index or an
    embedding), or runs sequentially what could run in parallel.

What to change
    Use another kernel for the same computation. `torch.compile` generates one for the given shapes.
    Another layout or a fused operator avoids the slow kernel. A larger or rounder shape may select
    a better one.

When it does not help
    When no better kernel exists: the minimum is a bound, and some operators (sorting, random
    numbers, scattered indices) never come near it. When the host limits the step.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from boundby.faults import wasted_tiles
from boundby.faults.fault import Detection, Fault, Fix, Stage
from boundby.fixes import compiled
from boundby.model import OpCall, Phase, Tensor, units
from boundby.model.assumptions.detection import FAR_FROM_ROOF, SHORTEST_MINIMUM, WORKING_KERNEL
from boundby.model.assumptions.device import CLASS_MEMORY_SHARE, CLASS_PERCENTILE
from boundby.model.assumptions.savings import NEXT_CLASS_SHARE
from boundby.step.index_searches import searches
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord, shapes_of

# Operators with a smaller share of all operation time are not reported.
_WORTH_A_WORD = 0.03
# Fused attention never reaches its roof, and compiled operators cannot be improved by the compiler.
_NEVER_NEAR = ("attention", "triton", "cpp_fused_")
# Outside of the model these make data, which a compiled model does not contain.
_DRAWN = ("::normal_", "::uniform_", "::random_")
_SCORES = 128  # as in materialised-attention: shorter sequences have small scores
_VOCABULARY = 8192  # as in logits-materialised: smaller vocabularies have small logits
_TILE = 8  # 16 bytes of a 16-bit dtype: what matrix units load at once


def detect(step: StepView) -> Detection | None:
    groups = [
        (group, reached) for group in _far(step) if (reached := _reach(step, group)) is not None
    ]
    if not groups:
        return None
    reach = {index: reached for group, reached in groups for index in group}

    def brought(share: float) -> dict[int, float]:
        op_ns = {}
        for index, reached in reach.items():
            record = step.op_records[index]
            assert record.floor_ns is not None
            op_ns[index] = record.ns - share * max(0.0, record.ns - record.floor_ns / reached)
        return op_ns

    return Detection(
        low=Edit.set_time(brought(NEXT_CLASS_SHARE.low)),
        expected=Edit.set_time(brought(NEXT_CLASS_SHARE.value)),
        high=Edit.set_time(brought(NEXT_CLASS_SHARE.high)),
        where=step.lines(step.op_records[index] for index in reach)[:3],
        change=_change(step, groups[0][0]),
        assumes="a faster kernel exists; expected: it closes a quarter of the gap to the "
        "efficiency of others of its class",
        fix=_fix(step, groups[0][0]),
    )


def _far(step: StepView) -> list[list[int]]:
    """Calls of one operator, at one line, on the same shapes, that run far below their roof."""
    op_records = step.op_records
    groups: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for index, record in enumerate(op_records):
        if record.bound in ("compute", "memory") and not _is_another_fault(step, record):
            call = step.call(record)
            groups[record.name, record.source, shapes_of(call) if call else ""].append(index)
    start_up = step.machine.overheads.shortest_kernel_ns or 0.0
    if step.device == "cpu":
        start_up = step.machine.overheads.eager_op_ns or 0.0
    least = _WORTH_A_WORD * sum(record.ns for record in op_records)
    far = []
    for group in groups.values():
        ns = sum(op_records[index].ns for index in group)
        kernels = sum(op_records[index].kernels for index in group)
        floor = sum(op_records[index].floor_ns or 0.0 for index in group)
        long_enough = ns >= max(least, WORKING_KERNEL.value * start_up * kernels)
        if (
            long_enough
            and SHORTEST_MINIMUM.value * start_up * kernels < floor < FAR_FROM_ROOF.value * ns
        ):
            far.append((ns, group))
    return [group for _, group in sorted(far, key=lambda row: -row[0])]


def _reach(step: StepView, group: list[int]) -> float | None:
    """The share of their roofs that other operations of the same class reach; None without any."""
    inside = set(group)
    one = step.op_records[group[0]]
    others = [
        (min(1.0, record.floor_ns / record.ns), record.ns)
        for index, record in enumerate(step.op_records)
        if index not in inside
        and record.op_class == one.op_class
        and record.bound == one.bound
        and record.floor_ns
        and record.ns
    ]
    if not others:
        return None
    others.sort()
    fractions, times = (np.array(column) for column in zip(*others, strict=True))
    at = np.searchsorted(np.cumsum(times), CLASS_PERCENTILE.value / 100 * times.sum())
    return float(min(CLASS_MEMORY_SHARE.value, fractions[min(int(at), len(fractions) - 1)]))


def _is_another_fault(step: StepView, record: OpRecord) -> bool:
    if record.phase == Phase.OPTIMIZER or searches(record) or step.is_for_data(record):
        return True
    if any(name in record.name for name in _NEVER_NEAR):
        return True
    if record.module < 0 and record.name.endswith(_DRAWN):
        return True
    call = step.call(record)
    if call is None or _is_off_the_matrix_units(step, record):
        return True
    return _is_odd(record, call) or any(
        _is_scores(tensor) or _is_logits(record, tensor) for tensor in call.tensors
    )


def _is_off_the_matrix_units(step: StepView, record: OpRecord) -> bool:
    """Float32 products: another fault if there are matrix units; on a CPU one library computes
    them, compiled or not."""
    if record.op_class != "contraction":
        return False
    on_vectors = record.cost is not None and "matmul.float32" in record.cost.flops
    return step.device == "cpu" or (on_vectors and bool(step.machine.rate("matmul.tf32")))


def _is_scores(tensor: Tensor) -> bool:
    shape = tensor.shape
    return len(shape) >= 3 and shape[-1] == shape[-2] >= _SCORES


def _is_odd(record: OpRecord, call: OpCall) -> bool:
    """Products that wasted-tiles covers; no better kernel exists for images of odd sides."""
    if wasted_tiles.is_product(call):
        return bool(wasted_tiles.odd_extents(call))
    extents = (extent for tensor in call.tensors for extent in tensor.shape[-2:])
    return record.op_class == "contraction" and any(extent % _TILE for extent in extents)


def _is_logits(record: OpRecord, tensor: Tensor) -> bool:
    loses = "log_softmax" in record.name or "nll_loss" in record.name
    return loses and tensor.shape[-1:] >= (_VOCABULARY,)


def _fix(step: StepView, group: list[int]) -> Fix:
    is_product = step.op_records[group[0]].op_class == "contraction"
    return compiled.MAX_AUTOTUNE if is_product else compiled.COMPILE


def _change(step: StepView, group: list[int]) -> str:
    """The change that may give a better kernel, with the costliest operators and their distance
    from the roof."""
    op_records = [step.op_records[index] for index in group]
    ns, floor = (
        sum(record.ns for record in op_records),
        sum(record.floor_ns or 0.0 for record in op_records),
    )
    mode = ', mode="max-autotune"' if op_records[0].op_class == "contraction" else ""
    beyond = units.quantity(ns / floor, "x")
    slow = f"{op_records[0].name} takes {beyond} its roofline minimum"
    return f"model = torch.compile(model{mode})  # {slow}"


FAULT = Fault(
    id="far-from-roof",
    title="Slow kernels",
    kind="tuning",
    group="bandwidth",
    stage=Stage.FUSION,
    document=__doc__,
    detect=detect,
    fixes=(
        compiled.COMPILE,
        compiled.MAX_AUTOTUNE,
    ),
    excludes=("unfused-operators",),  # the same compiler would write the same kernels
)
