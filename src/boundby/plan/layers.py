"""The operators of one transformer layer on one chip, forward and backward, and their time."""

from __future__ import annotations

import functools
import math
from typing import Literal, NamedTuple

from boundby.model import OpCall, Record
from boundby.ops.attention import FULL, Mask, Shape, attend, attend_backward
from boundby.plan import assumptions, kernels
from boundby.plan.chips import Target
from boundby.plan.kernels import Kernel, tensor
from boundby.plan.model_config import ModelConfig

Recompute = Literal["none", "selective", "full"]
# Fused kernels; products with a fused softmax between them; separate operators of a framework.
Attention = Literal["fused", "softmax", "eager"]
_BF16 = "bfloat16"
_SCORES = "float16"


class Work(NamedTuple):
    """Device time by kind, arithmetic, and the number of operators that the host issues for it."""

    matmul: float = 0.0
    attention: float = 0.0
    memory: float = 0.0
    flops: float = 0.0
    operators: int = 0

    @property
    def ns(self) -> float:
        return self.matmul + self.attention + self.memory

    def plus(self, other: Work, times: float = 1.0) -> Work:
        return Work(
            self.matmul + times * other.matmul,
            self.attention + times * other.attention,
            self.memory + times * other.memory,
            self.flops + times * other.flops,
            self.operators + round(times * other.operators),
        )


class Slice(Record, frozen=True, kw_only=True):
    """One chip's part of a micro-batch: sequences, split over tensor and context axes."""

    sequences: float
    sequence: int
    tensor: int = 1
    context: int = 1
    expert: int = 1
    sequence_parallel: bool = True
    dtype: str = _BF16
    attention: Attention = "fused"
    tuned: bool = False
    pads: bool = False
    capacity: float | None = None

    @property
    def tokens(self) -> int:
        """Rows of a product on this chip."""
        return max(1, round(self.sequences * self.sequence / self.context))

    @property
    def outer_tokens(self) -> int:
        """Rows of operators between products: norms and sums."""
        if not self.sequence_parallel:
            return self.tokens
        return max(1, self.tokens // self.tensor)


class Passes(NamedTuple):
    """A layer's work: forward, backward, and what selective recomputation repeats."""

    forward: Work
    backward: Work
    repeated: Work


def _matmul(*found: Kernel) -> Work:
    return Work(
        matmul=sum(one.ns for one in found),
        flops=sum(one.flops for one in found),
        operators=len(found),
    )


def _memory(*found: Kernel) -> Work:
    return Work(memory=sum(one.ns for one in found), operators=len(found))


def _total(*parts: Work) -> Work:
    total = Work()
    for part in parts:
        total = total.plus(part)
    return total


def linear(
    target: Target,
    rows: int,
    k: int,
    n: int,
    dtype: str,
    groups: int = 1,
    *,
    tuned: bool = False,
    even: bool = False,
) -> tuple[Work, Work]:
    """Forward, and backward's two products; narrow types are converted before each."""
    k, n = max(1, k), max(1, n)
    how = {"tuned": tuned, "even": even}
    forward = _matmul(kernels.product(target, rows, k, n, dtype, groups, **how))
    backward = _matmul(
        kernels.product(target, rows, n, k, dtype, groups, **how),
        kernels.product(target, k, rows, n, dtype, groups, sums_rows=True, **how),
    )
    if dtype in ("float8", "float4", "int8"):
        forward = forward.plus(_convert(target, rows * groups, k))
        backward = backward.plus(_convert(target, rows * groups, n))
    return forward, backward


def _convert(target: Target, rows: int, width: int) -> Work:
    """Sixteen bits read, eight written, as they are and transposed."""
    call = OpCall(
        name="aten::copy_",
        args=(tensor(rows, width, dtype="float8"), tensor(rows, width, dtype=_BF16)),
    )
    return _memory(kernels.pointwise(target, call, fused=4 / 3))


def _unary(target: Target, name: str, *shapes: tuple[int, int]) -> Kernel:
    args = tuple(tensor(*shape, dtype=_BF16) for shape in shapes)
    return kernels.pointwise(target, OpCall(name=f"aten::{name}", args=args))


def _norm(target: Target, rows: int, width: int) -> tuple[Work, Work]:
    x, weight = tensor(rows, width, dtype=_BF16), tensor(width, dtype=_BF16)
    forward = OpCall(name="aten::native_layer_norm", args=(x, (width,), weight, weight, 1e-5))
    row = tensor(rows, dtype="float32")
    backward = OpCall(
        name="aten::native_layer_norm_backward",
        args=(x, x, (width,), row, row, weight, weight, (True, True, True)),
    )
    return (
        _memory(kernels.pointwise(target, forward)),
        _memory(kernels.pointwise(target, backward)),
    )


def attention(target: Target, config: ModelConfig, part: Slice, *, windowed: bool) -> Passes:
    """Scores, softmax and the product with the values; whole sequences, split over `context`."""
    heads = max(1, config.heads // part.tensor)
    latent = config.latent
    width = latent.nope_dim + latent.rope_dim if latent else config.head_dim
    value_width = latent.value_dim if latent else config.head_dim
    if part.attention != "fused":
        return _unfused(target, part, heads, width, value_width)
    mask = FULL
    if config.causal:
        mask = Mask(right=0, left=config.window if windowed else None)
    share = part.sequences / part.context
    shape = Shape(
        batch=1,
        heads=heads,
        queries=part.sequence,
        keys=part.sequence,
        width=width,
        value_width=value_width,
    )
    kv_heads = heads if latent else max(1, config.kv_heads // part.tensor)
    query = tensor(1, heads, part.sequence, width, dtype=_BF16)
    key = tensor(1, kv_heads, part.sequence, width, dtype=_BF16)
    value = tensor(1, kv_heads, part.sequence, value_width, dtype=_BF16)
    costs = {
        "forward": attend(query, key, value, shape=shape, mask=mask),
        "backward": attend_backward(query, query, key, value, query, shape=shape, mask=mask),
    }
    works = {}
    for direction, cost in costs.items():
        rate = target.sustained_rate("matmul.bfloat16") * attention_share(target)
        memory = cost.bytes / target.memory_rate / assumptions.POINTWISE_MEMORY_SHARE
        ns = max(cost.total_flops / rate, memory) * 1e9 * share
        works[direction] = Work(
            attention=ns + assumptions.KERNEL_FIXED_NS,
            flops=cost.total_flops * share,
            operators=1,
        )
    return Passes(works["forward"], works["backward"], works["forward"])


def attention_share(target: Target) -> float:
    """Share of the sustained matrix rate that fused attention reaches, by the kind of chip.

    One figure for all sequences: a curve over their length changes no table by half a point.
    """
    return assumptions.TPU_ATTENTION_SHARE if target.is_tpu else assumptions.ATTENTION_SHARE


def _unfused(target: Target, part: Slice, heads: int, width: int, value_width: int) -> Passes:
    """Two products, and the scores written and read between them."""
    groups = max(1, round(heads * part.sequences / part.context))
    s = part.sequence
    scores = _matmul(
        kernels.product(target, s, width, s, _SCORES, groups),
        kernels.product(target, s, s, value_width, _SCORES, groups),
    )
    gradients = scores.plus(scores)
    size = groups * s * s * 2
    times = assumptions.SCORE_PASSES
    if part.attention == "eager":
        times = assumptions.EAGER_SCORE_PASSES
    passes = kernels.stream(target, size * times).ns
    forward = Work(attention=scores.matmul + passes, flops=scores.flops, operators=5)
    backward = Work(attention=gradients.matmul + passes, flops=gradients.flops, operators=8)
    return Passes(forward, backward, forward)


def _projections(config: ModelConfig, part: Slice) -> list[tuple[int, int]]:
    """[k, n] of attention's weights on this chip."""
    split = part.tensor
    if config.latent is None:
        kv = max(1, config.kv_heads // split)
        qkv = (config.heads // split + 2 * kv) * config.head_dim
        return [(config.hidden, qkv), (config.heads * config.head_dim // split, config.hidden)]
    it = config.latent
    head = it.nope_dim + it.rope_dim
    heads = config.heads // split
    query = (
        [(config.hidden, it.q_rank), (it.q_rank, heads * head)]
        if it.q_rank
        else [(config.hidden, heads * head)]
    )
    return [
        *query,
        (config.hidden, it.kv_rank + it.rope_dim),
        (it.kv_rank, heads * (it.nope_dim + it.value_dim)),
        (heads * it.value_dim, config.hidden),
    ]


def _feed_forward(
    target: Target, config: ModelConfig, rows: int, ffn: int, part: Slice, groups: int = 1
) -> Passes:
    """The products and the activation of a feed-forward layer: up (and gate), activation, down;
    `rows` per group."""
    wide = ffn * (2 if config.gated else 1)
    how = {"tuned": part.tuned, "even": part.capacity is not None}
    up = linear(target, rows, config.hidden, wide, part.dtype, groups, **how)
    down = linear(target, rows, ffn, config.hidden, part.dtype, groups, **how)
    narrow = (rows * groups, ffn)
    if config.gated:
        act = _memory(_unary(target, "mul", narrow, narrow))
        act_back = _memory(
            _unary(target, "silu_backward", narrow, narrow), _unary(target, "mul", narrow, narrow)
        )
    else:
        act = _memory(_unary(target, "gelu", narrow))
        act_back = _memory(_unary(target, "gelu_backward", narrow, narrow))
    return Passes(_total(up[0], act, down[0]), _total(down[1], act_back, up[1]), act)


def _experts(target: Target, config: ModelConfig, part: Slice) -> Passes:
    """Router, the tokens sorted by expert and back, the experts' products, shared experts."""
    rows = max(1, part.tokens // part.tensor)
    sent = max(1, round(rows * config.active_experts * (part.capacity or 1.0)))
    local = max(1, config.experts // part.expert)
    per_expert = max(1, sent // local)
    routed = _feed_forward(target, config, per_expert, config.moe_ffn, part, local)
    router = linear(target, rows, config.hidden, config.experts, _BF16)
    shape = (sent, config.hidden)
    sort = _memory(_unary(target, "relu", shape), _unary(target, "add", shape, shape))
    forward = _total(router[0], sort, routed.forward)
    backward = _total(router[1], sort, routed.backward)
    # Each expert's products are launched separately: three forward, six backward.
    forward = forward._replace(operators=forward.operators + 3 * (local - 1))
    backward = backward._replace(operators=backward.operators + 6 * (local - 1))
    repeated = _total(routed.repeated, sort)
    if config.shared_experts:
        ffn = max(1, config.shared_experts * config.moe_ffn // part.tensor)
        shared = _feed_forward(target, config, part.tokens, ffn, part)
        forward = forward.plus(shared.forward)
        backward = backward.plus(shared.backward)
        repeated = repeated.plus(shared.repeated)
    return Passes(forward, backward, repeated)


@functools.lru_cache(maxsize=4096)
def layer(target: Target, config: ModelConfig, part: Slice, *, moe: bool) -> Passes:
    """One layer: attention and feed-forward with their norms and sums."""
    forward, backward, repeated = Work(), Work(), Work()
    for k, n in _projections(config, part):
        there, back = linear(target, part.tokens, k, n, part.dtype, tuned=part.tuned)
        forward, backward = forward.plus(there), backward.plus(back)
    share = config.windowed
    kinds = [(True, share), (False, 1 - share)]
    for windowed, weight in kinds:
        if weight:
            found = attention(target, config, part, windowed=windowed)
            forward = forward.plus(found.forward, weight)
            backward = backward.plus(found.backward, weight)
            repeated = repeated.plus(found.repeated, weight)
    rotary = _memory(
        _unary(target, "relu", (part.tokens, config.hidden // part.tensor))
        if config.gated
        else _unary(target, "add", (part.tokens, config.hidden // part.tensor))
    )
    outer = (part.outer_tokens, config.hidden)
    norm = _norm(target, *outer)
    residual = _memory(_unary(target, "add", outer, outer))
    ends = _total(norm[0], norm[0], residual, residual, rotary)
    ends_back = _total(norm[1], norm[1], residual, residual, rotary)
    inner = (
        _experts(target, config, part)
        if moe
        else _feed_forward(target, config, part.tokens, max(1, config.ffn // part.tensor), part)
    )
    found = Passes(
        _total(forward, ends, inner.forward),
        _total(backward, ends_back, inner.backward),
        _total(repeated, norm[0], norm[0], inner.repeated),
    )
    return Passes(*(work._replace(memory=assumptions.PASSES * work.memory) for work in found))


@functools.lru_cache(maxsize=4096)
def head(target: Target, config: ModelConfig, part: Slice) -> Passes:
    """The output head and the loss over the vocabulary, split over the tensor axis."""
    if not config.vocab or not config.head:
        return Passes(Work(), Work(), Work())
    vocab = config.vocab
    if part.tensor > 1 or part.pads:  # shards are equal and aligned
        vocab = assumptions.PADDED * math.ceil(vocab / part.tensor / assumptions.PADDED)
    there, back = linear(target, part.tokens, config.hidden, vocab, _BF16, tuned=part.tuned)
    logits = (part.tokens, vocab)
    loss = _memory(_unary(target, "mul", logits, logits), _unary(target, "exp", logits))
    return Passes(there.plus(loss), back.plus(loss), Work())
