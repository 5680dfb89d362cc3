"""Attention writes its scores to memory.

What it looks for
    A softmax over square attention scores, with the products, masks, casts and dropout around it.
    Each of these reads and writes a tensor of batch x heads x length x length.

Why it costs time
    The scores are the largest tensor of the layer and are used once. A fused kernel keeps a tile of
    them on the chip and writes only the result; the backward recomputes them.

What to change
    Call `F.scaled_dot_product_attention(q, k, v, is_causal=True)`, or pass
    `attn_implementation="sdpa"` to a model that supports it. With grouped-query attention pass
    `enable_gqa=True` instead of repeating keys and values.

When it does not help
    With short sequences, whose scores fit in the cache; they are counted only if the fused kernel
    could be benchmarked. Attention to another sequence of another length is not counted. On a CPU
    with dropout on the attention weights or with a trained bias on the scores: torch has no fused
    kernel for these there and uses plain products. When the scores themselves are needed. When the
    host limits the step.

Measured on
    GPT-2 (batch 8 x 1024) on an H200: 92.1 to 59.7 ms per step; predicted 60.4 ms. A Llama-style
    model (16 layers, batch 4 x 1024): 140 to 86.2 ms; predicted 88.8 ms, before repeated keys and
    values were included.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from boundby.faults.attention_scores import (
    Scores,
    causality,
    is_masked,
    scores_made,
    scores_of,
    touches_scores,
    waits_for_masks,
)
from boundby.faults.fault import Detection, Fault
from boundby.faults.repeated_heads import Repeats, repeats
from boundby.fixes import attention, compiled
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import Phase, Tensor
from boundby.model.assumptions.device import ATTENTION_MATH_SHARE
from boundby.model.assumptions.savings import ATTENTION_BENCHMARK_RATIO, DROPOUT_BENCHMARK_P
from boundby.step.model import Edit, MatmulPrecision, StepView
from boundby.step.nesting import nearest
from boundby.step.op_record import OpRecord
from boundby.step.op_variants import is_loose

# Smaller scores are counted only if the fused kernel could be benchmarked.
_SHORTEST_UNTIMED = 128
# torch's fallback if no fused kernel is possible.
_PLAIN = "aten::_scaled_dot_product_attention_math"
# Products of a backward, in units of the forward's two.
_BACKWARD = 2.5
_DIGITS: tuple[MatmulPrecision | None, ...] = (None, "loose", "bfloat16")
# A CPU has no operator for dropout: it draws a mask.
_DROPPING = ("dropout", "bernoulli")


def detect(step: StepView) -> Detection | None:
    layers = _softmaxes(step)
    sides: dict[Scores, int] = defaultdict(int)
    for index in layers:
        scores = _side_of(step, index)
        if scores is not None:
            sides[scores] += 1
    sides = _worth_fusing(step, sides)
    if not sides:
        return None
    layers = [index for index in layers if _side_of(step, index) in sides]
    attention_ops = [
        index for index in range(len(step.op_records)) if touches_scores(step, index, set(sides))
    ]
    attention_ops = _without_look_alikes(step, attention_ops, sides)
    attention_ops += _layout_copies(step, set(attention_ops))
    if step.device == "cpu" and _drops_out(step, attention_ops):
        return None
    flops = _attention_flops(step, attention_ops)
    rate = _matrix_rate(step, attention_ops)
    if not flops or not rate:
        return None
    times = _fused_times(step, attention_ops, sides, flops / rate * 1e9)
    if times is None:
        return None
    slow, middle, fast = times
    shared = repeats(step, sides)
    return Detection(
        # A kernel without shared heads needs them repeated.
        low=_fused(step, attention_ops, slow, Repeats()),
        expected=_fused(step, attention_ops, middle, shared),
        high=_fused(step, attention_ops, fast, shared),
        where=step.lines(step.op_records[index] for index in layers)[:2],
        change=_change(step, layers, attention_ops, shared),
        assumes="the scores are used for nothing else",
    )


def _side_of(step: StepView, index: int) -> Scores | None:
    call = step.call(step.op_records[index])
    return scores_of(call.tensors[0]) if call and call.tensors else None


def _worth_fusing(step: StepView, sides: dict[Scores, int]) -> dict[Scores, int]:
    """The attentions without short ones that could not be benchmarked, such as those of a decoder
    that attends to few tokens beside an encoder that attends to many."""
    attention_ops = [
        index for index in range(len(step.op_records)) if touches_scores(step, index, set(sides))
    ]
    timed = _timed(step, attention_ops, sides, causal=False)
    return {
        scores: layers
        for scores, layers in sides.items()
        if scores[1] >= _SHORTEST_UNTIMED or timed[scores] is not None
    }


def _softmaxes(step: StepView) -> list[int]:
    """Softmaxes that the script calls, not those that torch calls for other operators."""
    timeline = step.timeline
    plain = np.array([name == _PLAIN for name in timeline.names] or [False])
    inside = nearest(timeline.host.parent, plain[timeline.host.name])
    return [
        index
        for index, record in enumerate(step.op_records)
        if record.name.endswith("::_softmax")
        and record.ns > 0
        and (record.row < 0 or inside[record.row] < 0)
    ]


def _without_look_alikes(
    step: StepView, attention_ops: list[int], sides: dict[Scores, int]
) -> list[int]:
    """The operations without those that only copy queries: if a head is as wide as the sequence is
    long, its queries have the shape of scores."""
    op_records = [step.op_records[index] for index in attention_ops]
    heads = ((scores[1], _head(step, op_records, scores)) for scores in sides)
    if not any(head is not None and head[0] == side for side, head in heads):
        return attention_ops
    return [index for index in attention_ops if not step.op_records[index].name.endswith("::copy_")]


def _change(step: StepView, layers: list[int], attention_ops: list[int], shared: Repeats) -> str:
    """The change, adapted to the observed step; a model of transformers has a switch for it."""
    sources = step.timeline.sources
    places = {step.op_records[index].inside for index in layers}
    if any(sources[place].startswith("transformers/") for place in places if place >= 0):
        return 'model.set_attn_implementation("sdpa")  # or attn_implementation= when it is made'
    given = ["q", "k", "v"]
    if causality(step, attention_ops)[0]:
        given.append("is_causal=True")
    elif is_masked(step, attention_ops):
        given.append("attn_mask=mask")
    if _drops_out(step, attention_ops):
        given.append("dropout_p=p")
    if shared.gone:
        given.append("enable_gqa=True")
    return f"y = F.scaled_dot_product_attention({', '.join(given)})"


def _fused_times(
    step: StepView, attention_ops: list[int], sides: dict[Scores, int], at_roof_ns: float
) -> tuple[float, float, float] | None:
    """The times of the fused kernels: slowest, likeliest, fastest; None if unknown.

    A causal one skips what is masked, half of everything; what that saves depends on the kernel.
    """
    is_causal, may_be = causality(step, attention_ops)
    plain = _total(_timed(step, attention_ops, sides, causal=False))
    causal = _total(_timed(step, attention_ops, sides, causal=True)) if may_be else plain
    slow, middle, fast = (
        one**step.benchmark_doubt for one in ATTENTION_BENCHMARK_RATIO.high_to_low
    )
    if plain is None:
        if min(side for _, side in sides) < _SHORTEST_UNTIMED:
            return None
        plain, causal = at_roof_ns, at_roof_ns / 2
        slow, middle, fast = (
            1 / ATTENTION_MATH_SHARE.low,
            1 / ATTENTION_MATH_SHARE.value,
            1 / ATTENTION_MATH_SHARE.high,
        )
    causal = plain if causal is None else min(plain, causal)
    likely, best = causal if is_causal else plain, causal if may_be else plain
    return plain * slow, likely * middle, best * fast


def _layout_copies(step: StepView, attention_ops: set[int]) -> list[int]:
    """Copies that only reorder tensors for batched products, and back."""
    flow = step.flow
    if flow is None:
        return []
    found = []
    for index in flow.order:
        call = step.call(step.op_records[index])
        if (
            index in attention_ops
            or not step.op_records[index].name.endswith("::copy_")
            or call is None
        ):
            continue
        tensors = call.tensors
        if len(tensors) < 2 or tensors[0].dtype != tensors[1].dtype:
            continue
        readers = {reader for value in flow.makes[index] for reader in flow.values[value].readers}
        if (readers and readers <= attention_ops) or (
            flow.makers[index] and flow.makers[index] <= attention_ops
        ):
            found.append(index)
    return found


def _total(timed: dict[Scores, float | None]) -> float | None:
    known = [ns for ns in timed.values() if ns is not None]
    return sum(known) if len(known) == len(timed) else None


def _timed(
    step: StepView, attention_ops: list[int], sides: dict[Scores, int], *, causal: bool
) -> dict[Scores, float | None]:
    """Benchmarks of the fused attention of all layers of each shape; None if unknown."""
    op_records = [step.op_records[index] for index in attention_ops]
    dropout = _drops_out(step, attention_ops)
    backward = any(record.phase == Phase.BACKWARD for record in op_records)
    found: dict[Scores, float | None] = {}
    for (count, side), layers in sides.items():
        found[count, side] = None
        head = _head(step, op_records, (count, side))
        if head is None:
            continue
        width, dtype = head
        product_precision = step.product_precision or (
            "loose" if any(map(is_loose, op_records)) else None
        )
        op_benchmarks = {
            one: _exercise((1, count, side, width), dtype, one, (dropout, causal, backward))
            for one in _DIGITS
        }
        # The others are requested too: another fix may change the precision of products.
        ns = {one: step.timings.ns(benchmark) for one, benchmark in op_benchmarks.items()}[
            product_precision
        ]
        if ns is not None:
            found[count, side] = layers * ns
    return found


def _drops_out(step: StepView, attention_ops: list[int]) -> bool:
    return any(part in step.op_records[index].name for index in attention_ops for part in _DROPPING)


def _exercise(
    shape: tuple[int, ...],
    dtype: str,
    product_precision: MatmulPrecision | None,
    how: tuple[bool, bool, bool],
) -> OpBenchmark:
    """The benchmark: float32 tensors in the precision of the step's products."""
    dropout, causal, backward = how
    if dtype == "float32" and product_precision == "bfloat16":
        dtype = product_precision
    each = Tensor(shape=shape, dtype=dtype)
    values = (each, each, each, DROPOUT_BENCHMARK_P.value if dropout else 0.0, causal, backward)
    return OpBenchmark(
        name="attention", args=values, loose=dtype == "float32" and product_precision == "loose"
    )


def _head(step: StepView, op_records: list[OpRecord], scores: Scores) -> tuple[int, str] | None:
    """A head's width and its dtype, from the product that makes the scores."""
    for record in op_records:
        call = step.call(record)
        if record.op_class == "contraction" and call and scores_made(call.tensors) == scores:
            return call.tensors[0].shape[-1], call.tensors[0].dtype
    return None


def _attention_flops(step: StepView, attention_ops: list[int]) -> float:
    """The products of a fused attention; its backward makes the scores again."""
    forward = backward = 0.0
    for index in attention_ops:
        record = step.op_records[index]
        if record.op_class == "contraction" and record.cost is not None:
            if record.phase == Phase.BACKWARD:
                backward += record.cost.total_flops
            else:
                forward += record.cost.total_flops
    return forward + (_BACKWARD / 2 * backward if backward else 0.0)


def _matrix_rate(step: StepView, attention_ops: list[int]) -> float | None:
    units = {
        unit
        for index in attention_ops
        if (cost := step.op_records[index].cost) is not None
        for unit in cost.flops
        if unit.startswith("matmul.")
    }
    rates = [rate for unit in units if (rate := step.machine.rate(unit))]
    return max(rates, default=None)


def _fused(step: StepView, attention_ops: list[int], ns: float, shared: Repeats) -> Edit:
    """The fused kernels replace the softmax, forward and backward; the other operations are
    removed."""
    op_records = step.op_records
    kept = [index for index in attention_ops if "_softmax" in op_records[index].name]
    before = sum(op_records[index].ns for index in kept)
    left = ns / before if before else 1.0
    op_ns = {index: op_records[index].ns / times for index, times in shared.larger.items()}
    op_ns |= dict.fromkeys([*shared.gone, *attention_ops], 0.0)
    op_ns |= {index: op_records[index].ns * left for index in kept}
    gone = (shared.gone | set(attention_ops)) - set(kept)
    return (
        Edit(op_ns=op_ns, unfusible=frozenset(kept))
        + Edit.scale_launches(gone, 0.0)
        + Edit.drop_waits(waits_for_masks(step))
    )


FAULT = Fault(
    id="materialised-attention",
    title="Attention scores written to memory",
    kind="tuning",
    group="bandwidth",
    document=__doc__,
    detect=detect,
    fixes=(
        attention.SDPA,
        compiled.COMPILE,
    ),
)
