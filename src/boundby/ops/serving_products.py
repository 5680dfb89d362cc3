"""Attention over caches, experts and quantised products of serving engines.

The length of each sequence in a paged cache is in device memory, which no profiler records: the
longest, which is an argument, is used for all of them, an upper bound. So is the number of experts
that the tokens of a call reach.
"""

from __future__ import annotations

import itertools

import msgspec

from boundby.model import Cost, OpCall, Record, Tensor
from boundby.ops.attention import CAUSAL_FROM_END, FORWARD_PRODUCTS, FULL, Mask, Shape
from boundby.ops.contraction import matrix_flops, multiply
from boundby.ops.registry import NotRecordedError, formula
from boundby.ops.traffic import (
    argument,
    dense,
    flag,
    integer,
    maybe,
    moved,
    partial,
    scalar_type,
    tensor,
)

_INT4_IN_INT32 = 8  # definition


class _Paged(Record, frozen=True, kw_only=True):
    """Positions of an operator's arguments; the query's offsets give the number of sequences."""

    query: int = 0
    cache: int = 1  # of keys; that of values follows
    offsets: int | None = None
    longest: int
    causal: int | None = None


_PAGED = {
    "_vllm_fa2_C::varlen_fwd": _Paged(offsets=4, longest=11, causal=15),
    **dict.fromkeys(
        ("_vllm_fa3_C::fwd", "flash_attn_3::fwd", "sgl_kernel::fwd"),
        _Paged(offsets=7, longest=13, causal=24),
    ),
    "aiter::mha_batch_prefill": _Paged(offsets=3, longest=7, causal=12),
    "_C::paged_attention_v1": _Paged(query=1, cache=2, longest=9),
    "_C::paged_attention_v2": _Paged(query=4, cache=5, longest=12),
    "_rocm_C::paged_attention": _Paged(query=4, cache=5, longest=13),
}


@formula(*_PAGED, op_class="contraction")
def paged_attention(call: OpCall) -> Cost:
    """Query [tokens, heads, width] against a cache in blocks; a decode has one token per
    sequence."""
    places = _PAGED[call.name]
    query, cache = tensor(call, places.query), tensor(call, places.cache)
    offsets = maybe(call, places.offsets) if places.offsets is not None else None
    keys = integer(call, places.longest)
    causal = places.causal is not None and flag(call, places.causal)
    if len(query.shape) != 3:  # [sequences, queries, heads, width]
        sequences = query.shape[0]
    else:
        sequences = offsets.elements - 1 if offsets else query.shape[0]
    heads, width = query.shape[-2:]
    queries = query.elements / (heads * width) / max(1, sequences)
    return _attend_cache(
        query,
        cache,
        key_heads=_key_heads(call, places, cache),
        shape=Shape(
            batch=sequences,
            heads=heads,
            queries=queries,
            keys=keys,
            width=width,
            value_width=width,
        ),
        mask=CAUSAL_FROM_END if causal else FULL,
    )


def _key_heads(call: OpCall, places: _Paged, cache: Tensor) -> int:
    """Blocks are [block, position, heads, width], or of one position; older kernels have the number
    as an argument."""
    if len(cache.shape) in (3, 4) and places.causal is not None:
        return cache.shape[-2]
    return integer(call, places.cache + 2)


def _attend_cache(
    query: Tensor, cache: Tensor, *, key_heads: int, shape: Shape, mask: Mask
) -> Cost:
    """Each sequence's keys and values are read once, for all heads that share them."""
    read = round(shape.batch * shape.keys * key_heads * shape.width)
    cached = dense((read,), cache.dtype)
    cost = moved(
        reads=(query, cached, msgspec.structs.replace(cached)),
        writes=(dense(query.shape, query.dtype),),
        flops=matrix_flops(query.dtype, shape.multiply_adds(FORWARD_PRODUCTS, mask)),
    )
    return msgspec.structs.replace(
        cost, bytes_read=query.bytes + 2 * cached.bytes, upper_bound=True
    )


@formula(
    "vllm::inplace_fused_experts",
    "vllm::outplace_fused_experts",
    "sglang::inplace_fused_experts",
    "sglang::outplace_fused_experts",
    "vllm::rocm_aiter_fused_moe",
    op_class="contraction",
)
def fused_experts(call: OpCall) -> Cost:
    """(tokens [T, K], first weights [E, 2N, K], second [E, K, N], weights and ids [T, chosen])."""
    tokens, first, second = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    chosen = maybe(call, 4) or tensor(call, 3)  # both have one element per token and expert
    experts, both, k = first.shape
    rows = chosen.elements
    reached = min(experts, rows) / experts
    multiply_adds = rows * (both * k + second.shape[-2] * second.shape[-1])
    cost = moved(
        reads=(
            tokens,
            partial(first, first.elements * reached),
            partial(second, second.elements * reached),
            maybe(call, 3),
            chosen,
        ),
        writes=(dense(tokens.shape, tokens.dtype),),
        flops=matrix_flops(_unit(first.dtype, tokens.dtype), multiply_adds),
    )
    return msgspec.structs.replace(cost, upper_bound=True)


def _unit(weight: str, activation: str) -> str:
    """The dtype of the product: 8-bit weights are multiplied with 8-bit activations, others are
    not."""
    return weight if weight.startswith("float8") or weight == "int8" else activation


@formula("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp", op_class="contraction")
def cutlass_scaled_mm(call: OpCall) -> Cost:
    """(out, a, b, scales of a, scales of b, ...): fp8 or int8 products."""
    out, a, b = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    scales = moved(reads=(maybe(call, 3), maybe(call, 4)))
    added = maybe(call, 5) if call.name.endswith("_mm") else None
    return multiply(a, b, added=added, dtype=out.dtype) + Cost(bytes_read=scales.bytes_read)


@formula("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm", op_class="contraction")
def scaled_mm(call: OpCall) -> Cost:
    """(a, b, scales of a, scales of b, output dtype, bias)."""
    scales = moved(reads=(maybe(call, 2), maybe(call, 3)))
    dtype = scalar_type(argument(call, 4)) or "bfloat16"
    cost = multiply(tensor(call, 0), tensor(call, 1), added=maybe(call, 5), dtype=dtype)
    return cost + Cost(bytes_read=scales.bytes_read)


@formula("vllm::rocm_unquantized_gemm", "_rocm_C::wvSplitK", op_class="contraction")
def weights_transposed(call: OpCall) -> Cost:
    """x [M, K] and weights [N, K]; the small-batch kernel has the weights first."""
    first, second = tensor(call, 0), tensor(call, 1)
    m, k = first.shape[0], first.shape[-1]
    return _product(call, m, second.shape[0], k, first.dtype)


@formula("_C::awq_gemm", op_class="contraction")
def awq_gemm(call: OpCall) -> Cost:
    """x [M, K] and int4 weights, eight in each int32 of [K, N / 8]."""
    x, weight = tensor(call, 0), tensor(call, 1)
    return _product(call, x.shape[0], weight.shape[1] * _INT4_IN_INT32, x.shape[1], x.dtype)


@formula("_C::gptq_gemm", op_class="contraction")
def gptq_gemm(call: OpCall) -> Cost:
    """x [M, K] and weights packed along K: [K / 8, N]."""
    x, weight = tensor(call, 0), tensor(call, 1)
    return _product(call, x.shape[0], weight.shape[1], x.shape[1], x.dtype)


@formula(
    "_C::gptq_marlin_gemm",
    "_C::marlin_gemm",
    "_C::gptq_marlin_24_gemm",
    "_C::awq_marlin_gemm",
    "sgl_kernel::gptq_marlin_gemm",
    op_class="contraction",
)
def marlin_gemm(call: OpCall) -> Cost:
    """Weights in a special order; M, N and K follow each other among the arguments."""
    x = tensor(call, 0)
    m, k = x.shape[0], x.shape[-1]
    for one, two, three in zip(call.args, call.args[1:], call.args[2:], strict=False):
        if isinstance(two, int) and (one, three) == (m, k):
            return _product(call, m, two, k, x.dtype)
    raise NotRecordedError(f"{call.name}: no size of the product was recorded")


def _product(call: OpCall, m: int, n: int, k: int, dtype: str) -> Cost:
    """Every tensor argument is read, weights as they are packed; [M, N] is written."""
    read_tensors = [item for item in call.tensors if item.shape != (m, n) or n == k]
    return moved(
        reads=list(itertools.islice(read_tensors, 6)),
        writes=(dense((m, n), dtype),),
        flops=matrix_flops(dtype, m * n * k),
    )
