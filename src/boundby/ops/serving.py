"""Kernels of serving engines that record their arguments: vLLM's own operators.

Operators that depend on an unrecorded block table (paged attention, experts) stay unknown.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall
from boundby.ops.registry import formula
from boundby.ops.traffic import arithmetic, like, maybe, moved, partial, tensor


@formula("_C::rms_norm", op_class="normalization")
def rms_norm(call: OpCall) -> Cost:
    """(out, input, weight, eps)."""
    out, x, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(reads=(x, weight), writes=(out,), flops=arithmetic(x.dtype, 4 * x.elements))


@formula("_C::fused_add_rms_norm", op_class="normalization")
def fused_add_rms_norm(call: OpCall) -> Cost:
    """(input, residual, weight, eps): both are updated in place."""
    x, residual, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    flops = arithmetic(x.dtype, 5 * x.elements)
    return moved(reads=(x, residual, weight), writes=(x, residual), flops=flops)


@formula("_C::silu_and_mul", "_C::gelu_and_mul", "_C::gelu_tanh_and_mul", op_class="elementwise")
def act_and_mul(call: OpCall) -> Cost:
    """(out, input): one half gates the other."""
    out, x = tensor(call, 0), tensor(call, 1)
    return moved(reads=(x,), writes=(out,), flops=arithmetic(x.dtype, 6 * out.elements))


@formula("_C::rotary_embedding", op_class="elementwise")
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
    "_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", op_class="movement"
)
def reshape_and_cache(call: OpCall) -> Cost:
    """(key, value, key cache, value cache, slots): writes new rows into the cache."""
    key, value, cache = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    slots = maybe(call, 4)
    return moved(
        reads=(key, value, slots),
        writes=(like(key, dtype=cache.dtype), like(value, dtype=cache.dtype)),
    )
