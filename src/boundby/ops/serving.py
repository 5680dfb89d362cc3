"""Kernels of serving engines that record their arguments: vLLM, SGLang, FlashInfer, aiter.

Products and attention are in serving_products. Operators with only the name of a layer, whose cache
or experts are not recorded, stay unknown.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall
from boundby.ops.registry import formula
from boundby.ops.traffic import arithmetic, dense, like, maybe, moved, partial, tensor


@formula(
    "_C::rms_norm",
    "_C::rms_norm_static_fp8_quant",
    "_C::rms_norm_dynamic_per_token_quant",
    "sgl_kernel::rmsnorm",
    "flashinfer::rmsnorm",
    "aiter::rmsnorm",
    op_class="normalization",
)
def rms_norm(call: OpCall) -> Cost:
    """(out, input, weight, eps)."""
    out, x, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(reads=(x, weight), writes=(out,), flops=arithmetic(x.dtype, 4 * x.elements))


@formula("aiter::rms_norm", "aiter::rmsnorm2d_fwd", op_class="normalization")
def rms_norm_returned(call: OpCall) -> Cost:
    """(input, weight, eps) -> out."""
    x, weight = tensor(call, 0), tensor(call, 1)
    return moved(reads=(x, weight), writes=(like(x),), flops=arithmetic(x.dtype, 4 * x.elements))


@formula(
    "aiter::add_rmsnorm",
    "aiter::rmsnorm2d_fwd_with_add",
    "aiter::rmsnorm2d_fwd_with_add_ck",
    op_class="normalization",
)
def add_rms_norm(call: OpCall) -> Cost:
    """(out, input, residual, residual out, weight, eps)."""
    out, x, residual, added, weight = (tensor(call, place) for place in range(5))
    flops = arithmetic(x.dtype, 5 * x.elements)
    return moved(reads=(x, residual, weight), writes=(out, added), flops=flops)


@formula(
    "_C::fused_add_rms_norm",
    "sgl_kernel::fused_add_rmsnorm",
    "flashinfer::fused_add_rmsnorm",
    op_class="normalization",
)
def fused_add_rms_norm(call: OpCall) -> Cost:
    """(input, residual, weight, eps): both are updated in place."""
    x, residual, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    flops = arithmetic(x.dtype, 5 * x.elements)
    return moved(reads=(x, residual, weight), writes=(x, residual), flops=flops)


@formula("_C::fused_add_rms_norm_static_fp8_quant", op_class="normalization")
def fused_add_rms_norm_quant(call: OpCall) -> Cost:
    """(out, input, residual, weight, scale, eps): the residual is updated in place."""
    out, x, residual, weight = (tensor(call, place) for place in range(4))
    flops = arithmetic(x.dtype, 6 * x.elements)
    return moved(reads=(x, residual, weight), writes=(out, residual), flops=flops)


@formula(
    *(
        f"{library}::{name}_and_mul"
        for library in ("_C", "sgl_kernel", "flashinfer")
        for name in ("silu", "gelu", "gelu_tanh")
    ),
    "_C::mul_and_silu",
    "_C::swigluoai_and_mul",
    "_C::silu_and_mul_quant",
    op_class="elementwise",
)
def act_and_mul(call: OpCall) -> Cost:
    """(out, input): one half gates the other."""
    out, x = tensor(call, 0), tensor(call, 1)
    return moved(reads=(x,), writes=(out,), flops=arithmetic(x.dtype, 6 * out.elements))


@formula("_C::rotary_embedding", "sgl_kernel::rotary_embedding", op_class="elementwise")
def rotary_embedding(call: OpCall) -> Cost:
    """(positions, query, key, head size, cos-sin cache): updates query and key in place."""
    positions, query, key = tensor(call, 0), tensor(call, 1), maybe(call, 2)
    cache = maybe(call, 4)
    width = cache.shape[-1] if cache else 0
    rows = partial(cache, positions.elements * width) if cache else None
    elements = query.elements + (key.elements if key else 0)
    return moved(
        reads=(positions, query, key, rows),
        writes=(query, key),
        flops=arithmetic(query.dtype, 3 * elements),
    )


@formula(
    "_C::static_scaled_fp8_quant",
    "_C::dynamic_scaled_fp8_quant",
    "_C::dynamic_per_token_scaled_fp8_quant",
    op_class="elementwise",
)
def fp8_quant(call: OpCall) -> Cost:
    """(out, input, scale)."""
    out, x = tensor(call, 0), tensor(call, 1)
    return moved(reads=(x,), writes=(out,), flops=arithmetic(x.dtype, x.elements))


@formula(
    "_C_cache_ops::reshape_and_cache_flash",
    "_C_cache_ops::reshape_and_cache",
    "sglang::store_cache",
    op_class="movement",
)
def reshape_and_cache(call: OpCall) -> Cost:
    """(key, value, key cache, value cache, slots): writes new rows into the cache."""
    key, value, cache = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    slots = maybe(call, 4)
    return moved(
        reads=(key, value, slots),
        writes=(like(key, dtype=cache.dtype), like(value, dtype=cache.dtype)),
    )


@formula("_C_cache_ops::concat_and_cache_mla", op_class="movement")
def concat_and_cache_mla(call: OpCall) -> Cost:
    """(compressed keys and values, rotated keys, cache, slots): writes rows of both."""
    compressed, rotated, cache = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(
        reads=(compressed, rotated, maybe(call, 3)),
        writes=(like(compressed, dtype=cache.dtype), like(rotated, dtype=cache.dtype)),
    )


@formula(
    *(
        f"{library}::{name}_sampling_from_probs"
        for library in ("sgl_kernel", "flashinfer")
        for name in ("top_k_top_p", "top_p", "top_k", "min_p")
    ),
    op_class="movement",
)
def sampling(call: OpCall) -> Cost:
    """(probabilities [rows, vocabulary], ...): read once; one number is written per row."""
    probabilities = tensor(call, 0)
    chosen = dense((probabilities.shape[0],), "int32")
    flops = arithmetic("float32", probabilities.elements)
    return moved(reads=(probabilities,), writes=(chosen,), flops=flops)


@formula("_moe_C::topk_softmax", op_class="normalization")
def topk_softmax(call: OpCall) -> Cost:
    """(weights, ids, indices, logits of the gate)."""
    weights, ids, indices, logits = (tensor(call, place) for place in range(4))
    flops = arithmetic("float32", 5 * logits.elements)
    return moved(reads=(logits,), writes=(weights, ids, indices), flops=flops)


@formula("_moe_C::moe_sum", op_class="elementwise")
def moe_sum(call: OpCall) -> Cost:
    """(input [tokens, chosen, width], output [tokens, width])."""
    x, out = tensor(call, 0), tensor(call, 1)
    return moved(reads=(x,), writes=(out,), flops=arithmetic(x.dtype, x.elements))
