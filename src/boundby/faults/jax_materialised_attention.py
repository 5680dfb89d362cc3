"""Attention writes its scores to memory.

What it looks for
    Products whose result has one score for each pair of positions, in an XLA program, and the
    softmax and mask that read and write it.

Why it costs time
    The scores of all heads go to memory and back several times, forward and backward. A fused
    attention keeps them on the chip.

What to change
    `jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")` on a GPU, with
    16-bit inputs of shape [batch, positions, heads, features].

When it does not help
    With few positions, or where the scores themselves are needed.

Measured on
    A GPT on an H200 with 512 positions: 11.7 to 8.9 ms.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import OpCall
from boundby.model.assumptions.jax_savings import (
    FUSED_ATTENTION_POINTWISE_LEFT,
    FUSED_ATTENTION_PRODUCTS_LEFT,
)
from boundby.step.model import Edit, StepView

# With fewer positions there is little to gain.
_FEWEST_POSITIONS = 256


def detect(step: StepView) -> Detection | None:
    products: list[int] = []
    others: list[int] = []
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is None or not _has_scores(call):
            continue
        (products if record.op_class == "contraction" else others).append(index)
    if not products or not others or step.device != "cuda":
        return None
    low, expected, high = (
        Edit.set_time(
            {index: left * step.op_records[index].ns for index in others}
            | {index: kept * step.op_records[index].ns for index in products}
        )
        for left, kept in zip(
            FUSED_ATTENTION_POINTWISE_LEFT.high_to_low,
            FUSED_ATTENTION_PRODUCTS_LEFT.high_to_low,
            strict=True,
        )
    )
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=step.lines(step.op_records[index] for index in [*others, *products])[:3],
        change='jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")',
        assumes="q, k and v are 16-bit arrays [batch, positions, heads, features]",
    )


def _has_scores(call: OpCall) -> bool:
    """Whether an array contains a square for each of several heads."""
    for tensor in call.tensors:
        shape = tensor.shape
        if len(shape) >= 3 and shape[-1] == shape[-2] >= _FEWEST_POSITIONS:
            heads = 1
            for extent in shape[:-2]:
                heads *= extent
            if heads > 1:
                return True
    return False


FAULT = Fault(
    id="jax-materialised-attention",
    title="Attention scores in memory",
    kind="tuning",
    group="bandwidth",
    frameworks=("jax",),
    document=__doc__,
    detect=detect,
)
