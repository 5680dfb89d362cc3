"""Kernels a compiler made (Inductor's Triton and C++): bytes from their arguments.

Every tensor among the arguments is taken as touched once. Whether one is read, written or both
cannot be seen; arguments come inputs first, so the last one is counted as written, which leaves
the sum right but for tensors updated in place. What the fused operators compute is not recorded:
only templates of products and attention have FLOPs here.
"""

from __future__ import annotations

import itertools
import re

from boundby.costs.attention import FULL, attend, attend_backward, measure
from boundby.costs.contraction import matrix_flops
from boundby.costs.registry import NotRecordedError, OpClass, family
from boundby.costs.traffic import moved, partial, product
from boundby.model import Cost, OpCall, Tensor

_NORMALIZING = re.compile(r"norm|softmax|var_mean|logsumexp")
_GATHERING = re.compile(r"embedding|index|gather|scatter|nll_loss")
# What goes over all of a tensor, whatever is picked from it then.
_WHOLE = re.compile(r"softmax|logsumexp|new_zeros|full")


def op_class(name: str) -> OpClass:
    """Read from what the name says was fused; a template is a contraction."""
    if name.startswith("triton_tem_"):
        return "contraction"
    if name.startswith("triton_poi_"):
        return "elementwise"
    return "normalization" if _NORMALIZING.search(name) else "elementwise"


def _touched(call: OpCall) -> Cost:
    tensors = [item for item in call.tensors if item.elements]
    if not tensors:
        raise NotRecordedError(f"{call.name}: no tensor was recorded")
    gathering = len(tensors) > 1 and _GATHERING.search(call.name) is not None
    if gathering and _WHOLE.search(call.name) is None:
        # A table is larger than anything else in the kernel, but no more of it is touched than
        # the rest of the kernel has room for.
        largest = max(tensors, key=lambda item: item.elements)
        room = max(item.elements for item in tensors if item is not largest)
        tensors = [partial(item, room) if item is largest else item for item in tensors]
    cost = moved(reads=tensors[:-1], writes=tensors[-1:])
    return Cost(bytes_read=cost.bytes_read, bytes_written=cost.bytes_written, upper_bound=gathering)


@family("triton_", "cpp_fused_", "graph_", op_class=op_class)
def fused(call: OpCall) -> Cost | None:
    """Pointwise and reduction kernels: arguments only."""
    if call.name.startswith("graph_") and "_cpp_fused_" not in call.name:
        return None
    return _touched(call)


def _factors(tensors: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The first two neighbours that can be multiplied; an added matrix may come before them."""
    for a, b in itertools.pairwise(tensors):
        ranks = len(a.shape), len(b.shape)
        if min(ranks) >= 2 and a.shape[-1] == b.shape[-2] and ranks[0] == ranks[1]:
            return a, b
    raise NotRecordedError("no two factors of a product were recorded")


@family("triton_tem_", op_class=op_class)
def template(call: OpCall) -> Cost | None:
    """Products: (..., A, B, ..., out). Attention: (query, key, value, ..., out).

    A block mask given to flex attention skips scores nobody recorded: its FLOPs are those of the
    full square, an upper bound.
    """
    traffic = _touched(call)
    tensors = call.tensors
    if "flex_attention_backward" in call.name:
        query, key, value = [t for t in tensors if len(t.shape) == 4][:3]
        shape = measure(query, key, value, "heads first")
        cost = attend_backward(query, query, key, value, None, shape=shape, mask=FULL)
        return _flex(cost, traffic)
    if "flex" in call.name:
        query, key, value = [t for t in tensors if len(t.shape) == 4][:3]
        shape = measure(query, key, value, "heads first")
        cost = attend(query, key, value, shape=shape, mask=FULL)
        return _flex(cost, traffic)
    if "convolution" in call.name:
        return None
    a, b = _factors(tensors)
    multiply_adds = product(a.shape) * b.shape[-1]
    return traffic + Cost(flops=matrix_flops(a.dtype, multiply_adds))


def _flex(cost: Cost, traffic: Cost) -> Cost:
    return traffic + Cost(flops=cost.flops, repeated=cost.repeated, upper_bound=True)
