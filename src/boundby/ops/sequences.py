"""Attention kernels with the layout [batch, sequence, heads, width].

torch's own, those of the flash-attn package (2.7 and later) and the names that xformers gives them.

They also accept sequences of different lengths as [tokens, heads, width] with their offsets. Only
the number of offsets is recorded: the cost assumes equal lengths, which is a lower bound.
"""

from __future__ import annotations

import msgspec

from boundby.model import Cost, OpCall, Record, Tensor
from boundby.ops.attention import (
    CAUSAL,
    CAUSAL_FROM_END,
    FULL,
    Mask,
    Shape,
    attend,
    attend_backward,
    measure,
)
from boundby.ops.registry import NotRecordedError, formula
from boundby.ops.traffic import argument, flag, maybe, tensor


class Places(Record, frozen=True, kw_only=True):
    """Positions of an operator's arguments; None if it has no such argument."""

    query: int = 0  # key and value follow
    offsets: int | None = None
    causal: int
    window: int | None = None  # keys to the left, then to the right
    elsewhere: tuple[int, ...] = ()  # tensors that select keys; their number is not recorded
    out: int | None = None  # of the forward, in a backward

    def tensors(self, call: OpCall) -> tuple[Tensor, Tensor, Tensor]:
        first = self.query
        return tensor(call, first), tensor(call, first + 1), tensor(call, first + 2)

    def shape(self, call: OpCall) -> Shape:
        query, key, value = self.tensors(call)
        if any(maybe(call, position) is not None for position in self.elsewhere):
            raise NotRecordedError(f"{call.name}: how many keys are used was not recorded")
        offsets = maybe(call, self.offsets) if self.offsets is not None else None
        if offsets is None or offsets.elements < 2:
            return measure(query, key, value, "sequence first")
        sequences = offsets.elements - 1
        return Shape(
            batch=sequences,
            heads=query.shape[-2],
            queries=_tokens(query) / sequences,
            keys=_tokens(key) / sequences,
            width=query.shape[-1],
            value_width=value.shape[-1],
        )

    def mask(self, call: OpCall) -> Mask:
        """Return the mask: causal means no key to the right; a negative window means no window."""
        left, right = None, None
        if self.window is not None:
            left, right = _reach(call, self.window), _reach(call, self.window + 1)
        right = 0 if flag(call, self.causal) else right
        return Mask(corner="bottom right", left=left, right=right)


def _tokens(item: Tensor) -> int:
    return item.elements // (item.shape[-2] * item.shape[-1])


def _reach(call: OpCall, position: int) -> int | None:
    value = argument(call, position)
    return value if isinstance(value, int) and value >= 0 else None


_FORWARD = {
    "aten::_flash_attention_forward": Places(offsets=3, causal=8, window=11, elsewhere=(13, 15)),
    "flash_attn::_flash_attn_forward": Places(causal=5, window=6),
    "flash_attn::_flash_attn_varlen_forward": Places(
        offsets=3, causal=9, window=10, elsewhere=(15, 16, 17)
    ),
    "xformers_flash::flash_fwd": Places(offsets=3, causal=10, window=11, elsewhere=(5, 14)),
}


@formula(*_FORWARD, op_class="contraction")
def flash_attention_forward(call: OpCall) -> Cost:
    """(query, key, value, ...)."""
    places = _FORWARD[call.name]
    query, key, value = places.tensors(call)
    return attend(query, key, value, shape=places.shape(call), mask=places.mask(call))


_BACKWARD = {
    "aten::_flash_attention_backward": Places(query=1, out=4, offsets=6, causal=11, window=15),
    "flash_attn::_flash_attn_backward": Places(query=1, out=4, causal=11, window=12),
    "flash_attn::_flash_attn_varlen_backward": Places(
        query=1, out=4, offsets=9, causal=15, window=16
    ),
    "xformers_flash::flash_bwd": Places(query=2, out=5, offsets=7, causal=13, window=14),
}


@formula(*_BACKWARD, op_class="contraction")
def flash_attention_backward(call: OpCall) -> Cost:
    """(gradient, query, key, value, output, ...)."""
    places = _BACKWARD[call.name]
    query, key, value = places.tensors(call)
    grad = tensor(call, places.query - 1)
    out = maybe(call, places.out) if places.out is not None else None
    shape, mask = places.shape(call), places.mask(call)
    return attend_backward(grad, query, key, value, out, shape=shape, mask=mask)


_EFFICIENT_FORWARD = Places(offsets=4, causal=9, elsewhere=(12,))
_EFFICIENT_BACKWARD = Places(query=1, offsets=6, causal=14, out=5)


def _typed_mask(call: OpCall, kind: int, window: int) -> Mask:
    """custom_mask_type: none, causal from the top left, causal from the bottom right.

    A window includes the query's own key.
    """
    mask = (FULL, CAUSAL, CAUSAL_FROM_END)[argument(call, kind) or 0]
    size = argument(call, window) or 0
    return msgspec.structs.replace(mask, left=size - 1) if size > 0 else mask


@formula("aten::_efficient_attention_forward", op_class="contraction")
def efficient_attention_forward(call: OpCall) -> Cost:
    """(query, key, value, bias, ...)."""
    places = _EFFICIENT_FORWARD
    return attend(
        *places.tensors(call),
        shape=places.shape(call),
        mask=_typed_mask(call, places.causal, window=13),
        bias=maybe(call, 3),
        logsumexp=flag(call, 10),
    )


@formula("aten::_efficient_attention_backward", op_class="contraction")
def efficient_attention_backward(call: OpCall) -> Cost:
    """(gradient, query, key, value, bias, output, ...)."""
    places = _EFFICIENT_BACKWARD
    return attend_backward(
        tensor(call, 0),
        *places.tensors(call),
        maybe(call, 5),
        shape=places.shape(call),
        mask=_typed_mask(call, places.causal, window=18),
        bias=maybe(call, 4),
    )
