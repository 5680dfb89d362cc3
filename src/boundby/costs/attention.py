"""Attention that never writes its scores: every fused backend, forward and backward.

Causal attention counts the lower triangle only. That is what must be computed, so it is what a
floor may ask for and what utilisation may credit; kernels skip the masked blocks. torch's own
counter counts the full square: without a causal mask the two agree. A mask given as a tensor is
applied to scores that were computed, so it saves nothing.

The math backend is a composite: the products and the softmax inside it are costed themselves.
"""

from __future__ import annotations

from typing import Literal

from boundby.costs.contraction import matrix_flops
from boundby.costs.registry import formula
from boundby.costs.traffic import argument, dense, flag, like, maybe, moved, tensor
from boundby.model import Cost, OpCall, Record, Tensor

Layout = Literal["heads first", "sequence first"]

# Products of [queries, keys] scores with one head's width: forward, scores and output; backward,
# the scores again (they were not kept) and four gradients.
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5


def pairs(queries: int, keys: int, causal: bool) -> int:
    """How many query-key pairs are scored: all, or the triangle from the top left corner."""
    if not causal:
        return queries * keys
    full = max(0, queries - keys)
    rising = queries - full
    return rising * (rising + 1) // 2 + full * keys


class Shape(Record, frozen=True, kw_only=True):
    """The extents of one attention call."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int

    def multiply_adds(self, products: int, causal: bool) -> float:
        """Half of the products run over the head's width, half over the value's; the scores'
        recomputation in the backward is one more over the width."""
        widths = products // 2 * (self.width + self.value_width) + products % 2 * self.width
        return self.batch * self.heads * pairs(self.queries, self.keys, causal) * widths


def measure(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Shape:
    """Extents from the tensors; fewer key heads than query heads is grouped-query attention."""
    batch, *rest, width = query.shape
    key_rest = key.shape[-3:-1]
    if layout == "heads first":
        (heads, queries), keys = rest, key_rest[1]
    else:
        (queries, heads), keys = rest, key_rest[0]
    return Shape(
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        width=width,
        value_width=value.shape[-1],
    )


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    layout: Layout,
    causal: bool,
    bias: Tensor | None = None,
    logsumexp: bool = True,
) -> Cost:
    """Forward: read query, key, value; write the output and one float a row for the backward."""
    shape = measure(query, key, value, layout)
    rows = dense((shape.batch, shape.heads, shape.queries), "float32")
    return moved(
        reads=(query, key, value, bias),
        writes=(
            dense((*query.shape[:-1], shape.value_width), query.dtype),
            rows if logsumexp else None,
        ),
        flops=matrix_flops(query.dtype, shape.multiply_adds(FORWARD_PRODUCTS, causal)),
    )


def attend_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor | None,
    *,
    layout: Layout,
    causal: bool,
    bias: Tensor | None = None,
) -> Cost:
    """Backward: read all of the forward's tensors and the gradient, write three gradients."""
    shape = measure(query, key, value, layout)
    rows = dense((shape.batch, shape.heads, shape.queries), "float32")
    return moved(
        reads=(grad, query, key, value, out, bias, rows),
        writes=(like(query), like(key), like(value)),
        flops=matrix_flops(query.dtype, shape.multiply_adds(BACKWARD_PRODUCTS, causal)),
    )


# name -> where `is_causal` stands, and a bias, and whether the row sums are written
_FORWARD: dict[str, tuple[int, int | None, int | None]] = {
    "aten::_scaled_dot_product_flash_attention": (4, None, None),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (4, 5, None),
    "aten::_scaled_dot_product_efficient_attention": (6, 3, 4),
    "aten::_scaled_dot_product_cudnn_attention": (6, 3, 4),
    "aten::_scaled_dot_product_fused_attention_overrideable": (5, 3, None),
    "aten::_cudnn_attention_forward": (10, 3, 8),
}


@formula(*_FORWARD, op_class="contraction")
def scaled_dot_product(call: OpCall) -> Cost:
    """[batch, heads, sequence, width]."""
    causal, bias, logsumexp = _FORWARD[call.name]
    return attend(
        tensor(call, 0),
        tensor(call, 1),
        tensor(call, 2),
        layout="heads first",
        causal=flag(call, causal),
        bias=None if bias is None else maybe(call, bias),
        logsumexp=logsumexp is None or flag(call, logsumexp, default=True),
    )


# name -> where the forward's output stands, `is_causal`, and a bias
_BACKWARD: dict[str, tuple[int, int, int | None]] = {
    "aten::_scaled_dot_product_flash_attention_backward": (4, 11, None),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (4, 7, 8),
    "aten::_scaled_dot_product_efficient_attention_backward": (5, 11, 4),
    "aten::_scaled_dot_product_cudnn_attention_backward": (4, 14, 8),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": (6, 13, 4),
    "aten::_cudnn_attention_backward": (4, 14, 8),
}


@formula(*_BACKWARD, op_class="contraction")
def scaled_dot_product_backward(call: OpCall) -> Cost:
    """The gradient, then the forward's own arguments."""
    out, causal, bias = _BACKWARD[call.name]
    return attend_backward(
        tensor(call, 0),
        tensor(call, 1),
        tensor(call, 2),
        tensor(call, 3),
        maybe(call, out),
        layout="heads first",
        causal=flag(call, causal),
        bias=None if bias is None else maybe(call, bias),
    )


def _packed(call: OpCall, query: int, sizes: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences of several lengths laid end to end, as one batch of the longest.

    Only the longest length is recorded: every query then meets that many keys, an upper bound.
    """
    offsets = tensor(call, sizes)
    batch = max(1, offsets.elements - 1)
    lengths = (argument(call, longest), argument(call, longest + 1), argument(call, longest + 1))
    packed = []
    for position, length in zip((query, query + 1, query + 2), lengths, strict=True):
        item = tensor(call, position)
        heads, width = item.shape[-2:]
        per_sequence = length if isinstance(length, int) else item.elements // (heads * width)
        packed.append(dense((batch, per_sequence, heads, width), item.dtype))
    return packed[0], packed[1], packed[2]


def _with_packed_traffic(cost: Cost, call: OpCall) -> Cost:
    """The operations of the padded shapes, the traffic of what is really there."""
    tensors = [item for item in call.tensors if len(item.shape) > 1]
    out = tensors[0]
    traffic = moved(reads=tensors, writes=(like(out),))
    return Cost(
        flops=cost.flops,
        bytes_read=traffic.bytes_read,
        bytes_written=traffic.bytes_written,
        upper_bound=True,
    )


@formula("aten::_flash_attention_forward", op_class="contraction")
def flash_attention_forward(call: OpCall) -> Cost:
    """[batch, sequence, heads, width], or [all tokens, heads, width] with offsets."""
    causal = flag(call, 8)
    if maybe(call, 3) is not None:
        query, key, value = _packed(call, 0, 3, 5)
        cost = attend(query, key, value, layout="sequence first", causal=causal)
        return _with_packed_traffic(cost, call)
    query, key, value = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return attend(query, key, value, layout="sequence first", causal=causal)


def _packed_backward(call: OpCall, *, causal: bool) -> Cost:
    """Sequences of different lengths, one behind the other; the gradient comes first."""
    query, key, value = _packed(call, 1, 6, 8)
    cost = attend_backward(
        tensor(call, 0), query, key, value, None, layout="sequence first", causal=causal
    )
    return _with_packed_traffic(cost, call)


@formula("aten::_flash_attention_backward", op_class="contraction")
def flash_attention_backward(call: OpCall) -> Cost:
    """The same layouts, after the gradient."""
    causal = flag(call, 11)
    offsets = maybe(call, 6)
    if offsets is not None and offsets.elements > 1:
        return _packed_backward(call, causal=causal)
    return attend_backward(
        tensor(call, 0),
        tensor(call, 1),
        tensor(call, 2),
        tensor(call, 3),
        tensor(call, 4),
        layout="sequence first",
        causal=causal,
    )


@formula("aten::_efficient_attention_forward", op_class="contraction")
def efficient_attention_forward(call: OpCall) -> Cost:
    """[batch, sequence, heads, width]; a mask type other than zero is causal."""
    causal = flag(call, 9)
    if maybe(call, 4) is not None:
        query, key, value = _packed(call, 0, 4, 6)
        cost = attend(query, key, value, layout="sequence first", causal=causal)
        return _with_packed_traffic(cost, call)
    return attend(
        tensor(call, 0),
        tensor(call, 1),
        tensor(call, 2),
        layout="sequence first",
        causal=causal,
        bias=maybe(call, 3),
        logsumexp=flag(call, 10),
    )


@formula("aten::_efficient_attention_backward", op_class="contraction")
def efficient_attention_backward(call: OpCall) -> Cost:
    """The same after the gradient."""
    causal = flag(call, 14)
    if maybe(call, 6) is not None:
        return _packed_backward(call, causal=causal)
    return attend_backward(
        tensor(call, 0),
        tensor(call, 1),
        tensor(call, 2),
        tensor(call, 3),
        tensor(call, 5),
        layout="sequence first",
        causal=causal,
        bias=maybe(call, 4),
    )
