"""Fused attention, which does not write its scores: all backends, forward and backward.

Causal attention counts only the triangle of scores: kernels skip the masked blocks, so this is the
work of the roofline minimum and of the utilisation. torch's own
counter counts the full square: without a causal mask the two agree. A mask given as a tensor is
applied to scores that were computed, so it saves nothing.

The math backend is a composite: the products and the softmax inside it are costed themselves.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from boundby.model import Cost, OpCall, Record, Tensor
from boundby.ops.contraction import matrix_flops
from boundby.ops.registry import formula
from boundby.ops.traffic import arithmetic, dense, flag, like, maybe, moved, tensor

Layout = Literal["heads first", "sequence first"]

# Products of [queries, keys] scores with one head's width: forward, scores and output; backward,
# the scores again (they were not kept) and four gradients.
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5


class Mask(Record, frozen=True, kw_only=True):
    """The keys that a query attends to: how many on each side of the diagonal, None for all.

    The diagonal ends in the last query and key ("bottom right": a step of generation sees all of
    its cache) or begins in the first ("top left").
    """

    corner: Literal["top left", "bottom right"] = "top left"
    left: int | None = None
    right: int | None = None


FULL = Mask()
CAUSAL = Mask(right=0)
CAUSAL_FROM_END = Mask(corner="bottom right", right=0)


def pairs(queries: float, keys: float, mask: Mask) -> float:
    """Return the number of query-key pairs with a score."""
    first = keys - queries if mask.corner == "bottom right" else 0
    pair_count = queries * keys
    if mask.right is not None:
        pair_count = _keys_before(queries, keys, first + mask.right + 1)
    if mask.left is not None:
        pair_count -= _keys_before(queries, keys, first - mask.left)
    return pair_count


def _keys_before(queries: float, keys: float, edge: float) -> float:
    """Keys before an edge that moves by one key with each query, summed over the queries."""

    def before(position: float) -> float:
        rising = min(max(position, 0), keys)
        return rising * (rising - 1) / 2 + max(0, position - keys) * keys

    return before(edge + queries) - before(edge)


class Shape(Record, frozen=True, kw_only=True):
    """The dimensions of one attention call."""

    batch: int
    heads: int
    queries: float
    keys: float
    width: int
    value_width: int

    def multiply_adds(self, products: int, mask: Mask) -> float:
        """Half of the products are over the head's width, half over the value's; recomputing the
        scores in the backward is one more over the width."""
        widths = products // 2 * (self.width + self.value_width) + products % 2 * self.width
        return self.batch * self.heads * pairs(self.queries, self.keys, mask) * widths

    @property
    def rows(self) -> Tensor:
        """One float per row of scores, which the forward saves for the backward."""
        return dense((round(self.batch * self.heads * self.queries),), "float32")


def measure(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Shape:
    """Dimensions from the tensors; fewer key heads than query heads is grouped-query attention."""
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
    shape: Shape,
    mask: Mask,
    bias: Tensor | None = None,
    logsumexp: bool = True,
) -> Cost:
    """Forward: read query, key, value; write the output and one float per row for the backward."""
    return moved(
        reads=(query, key, value, bias),
        writes=(
            dense((*query.shape[:-1], shape.value_width), query.dtype),
            shape.rows if logsumexp else None,
        ),
        flops=matrix_flops(query.dtype, shape.multiply_adds(FORWARD_PRODUCTS, mask)),
    )


def attend_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor | None,
    *,
    shape: Shape,
    mask: Mask,
    bias: Tensor | None = None,
) -> Cost:
    """Backward: read the forward's tensors and the gradient, write three gradients."""
    cost = moved(
        reads=(grad, query, key, value, out, bias, shape.rows),
        writes=(like(query), like(key), like(value)),
        flops=matrix_flops(query.dtype, shape.multiply_adds(BACKWARD_PRODUCTS, mask)),
    )
    scores = matrix_flops(query.dtype, shape.multiply_adds(1, mask))
    return msgspec.structs.replace(cost, repeated=sum(scores.values()))


@formula("aten::_transform_bias_rescale_qkv", op_class="elementwise")
def transform_bias_rescale_qkv(call: OpCall) -> Cost:
    """(packed query, key and value, their bias, heads): each separately, the query scaled."""
    packed, bias = tensor(call, 0), tensor(call, 1)
    part = dense((packed.elements // 3,), packed.dtype)
    operations = 3 * part.elements + part.elements  # a bias for all three, a factor for one
    flops = arithmetic(packed.dtype, operations)
    return moved(reads=(packed, bias), writes=(part, part, part), flops=flops)


_ATEN = "aten::_scaled_dot_product_"

# name -> positions of `is_causal` and the bias, and whether the row sums are written
_FORWARD: dict[str, tuple[int, int | None, int | None]] = {
    f"{_ATEN}flash_attention": (4, None, None),
    f"{_ATEN}flash_attention_for_cpu": (4, 5, None),
    f"{_ATEN}efficient_attention": (6, 3, 4),
    f"{_ATEN}cudnn_attention": (6, 3, 4),
    f"{_ATEN}fused_attention_overrideable": (5, 3, None),
    "aten::_cudnn_attention_forward": (10, 3, 8),
}
# torch documents for these alone that `is_causal` is aligned at the bottom right
# (torch.nn.attention.bias).
_FROM_END = (f"{_ATEN}flash_attention", f"{_ATEN}flash_attention_backward")


def _mask(call: OpCall, position: int) -> Mask:
    if not flag(call, position):
        return FULL
    return CAUSAL_FROM_END if call.name in _FROM_END else CAUSAL


@formula(*_FORWARD, op_class="contraction")
def scaled_dot_product(call: OpCall) -> Cost:
    """[batch, heads, sequence, width]."""
    causal, bias, logsumexp = _FORWARD[call.name]
    query, key, value = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return attend(
        query,
        key,
        value,
        shape=measure(query, key, value, "heads first"),
        mask=_mask(call, causal),
        bias=None if bias is None else maybe(call, bias),
        logsumexp=logsumexp is None or flag(call, logsumexp, default=True),
    )


# name -> positions of the forward's output, `is_causal` and the bias
_BACKWARD: dict[str, tuple[int, int, int | None]] = {
    f"{_ATEN}flash_attention_backward": (4, 11, None),
    f"{_ATEN}flash_attention_for_cpu_backward": (4, 7, 8),
    f"{_ATEN}efficient_attention_backward": (5, 11, 4),
    f"{_ATEN}cudnn_attention_backward": (4, 14, 8),
    f"{_ATEN}fused_attention_overrideable_backward": (6, 13, 4),
    "aten::_cudnn_attention_backward": (4, 14, 8),
}


@formula(*_BACKWARD, op_class="contraction")
def scaled_dot_product_backward(call: OpCall) -> Cost:
    """The gradient, then the forward's own arguments."""
    out, causal, bias = _BACKWARD[call.name]
    query, key, value = tensor(call, 1), tensor(call, 2), tensor(call, 3)
    return attend_backward(
        tensor(call, 0),
        query,
        key,
        value,
        maybe(call, out),
        shape=measure(query, key, value, "heads first"),
        mask=_mask(call, causal),
        bias=None if bias is None else maybe(call, bias),
    )
