"""Compiler-generated kernels (Inductor's Triton and C++): bytes from arguments, FLOPs from names.

Every tensor among the arguments is assumed to be touched once. Whether it is read, written or both
is not recorded. Inductor passes tensors updated in place first, then inputs, then outputs: the last
is counted as written. If its shape cannot be the result of a pointwise kernel and the shape of the
first can, or there is only one, the first is read and written.

The name lists the fused operators, each once however often it occurs, and a long list is truncated:
each counts once for every element of the largest tensor, which is an estimate. Templates of
products and attention have their own FLOPs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.attention import FULL, attend, attend_backward, measure
from boundby.ops.contraction import matrix_flops
from boundby.ops.normalization import BACKWARD_OPERATIONS, FORWARD_OPERATIONS
from boundby.ops.pointwise import OPERATIONS
from boundby.ops.registry import NotRecordedError, OpClass, family
from boundby.ops.traffic import arithmetic, moved, partial, product

_NORMALIZING = re.compile(r"norm|softmax|var_mean|logsumexp")
_GATHERING = re.compile(r"embedding|index|gather|scatter|nll_loss")
# Operators that read a whole tensor, even if only a part of it is selected afterwards.
_WHOLE = re.compile(r"softmax|logsumexp|new_zeros|full")
# Operators that write a tensor and read none.
_MAKING = re.compile(r"zeros|ones|full|fill|empty|arange|iota|rand|bernoulli")
_NORMS = ("native_layer_norm", "native_group_norm", "native_batch_norm", "rms_norm")
_COUNTED = {
    **OPERATIONS,
    **dict.fromkeys(["sum", "mean", "prod", "amax", "amin", "max", "min", "cumsum"], 1),
    **dict.fromkeys(("var", "std", "var_mean", "native_dropout"), 2),
    "logsumexp": 3,
    **dict.fromkeys(("softmax", "log_softmax"), 5),
    **dict.fromkeys(("softmax_backward_data", "log_softmax_backward_data"), 4),
    **dict.fromkeys((*_NORMS, "native_batch_norm_legit_functional"), FORWARD_OPERATIONS),
    **dict.fromkeys([f"{name}_backward" for name in _NORMS], BACKWARD_OPERATIONS),
}
# The longest first, so that `gelu_backward` does not match `gelu`.
_NAMED = re.compile(
    rf"(?<![a-z0-9])({'|'.join(sorted(_COUNTED, key=len, reverse=True))})(?![a-z0-9])"
)


def op_class(name: str) -> OpClass:
    """Return the class of the fused operators in the name; a template is a contraction."""
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
        # A table is larger than all other tensors of the kernel, but the rest of the kernel limits
        # how much of it is touched.
        largest = max(tensors, key=lambda item: item.elements)
        room = max(item.elements for item in tensors if item is not largest)
        tensors = [partial(item, room) if item is largest else item for item in tensors]
    reads, writes = _directions(call.name, tensors, gathering=gathering)
    cost = moved(reads=reads, writes=writes)
    return Cost(
        flops=_flops(call.name, tensors),
        bytes_read=cost.bytes_read,
        bytes_written=cost.bytes_written,
        upper_bound=gathering,
    )


def _directions(
    name: str, tensors: Sequence[Tensor], *, gathering: bool
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The tensors that a kernel reads and those that it writes."""
    first, last = tensors[0], tensors[-1]
    if not name.startswith("triton_poi_") or gathering:
        return tensors[:-1], tensors[-1:]
    if len(tensors) == 1:
        return ((), tensors) if _MAKING.search(name) else (tensors, tensors)
    whole = max(item.elements for item in tensors)
    if last.elements < whole and first.elements == whole:
        return tensors, (first,)
    return tensors[:-1], tensors[-1:]


def _flops(name: str, tensors: Sequence[Tensor]) -> dict[str, float]:
    """Return the FLOPs: in float32 whatever dtype is stored, except for float64."""
    named = set(_NAMED.findall(name.partition("_fused_")[2]))
    floats = [item for item in tensors if "float" in item.dtype]
    if not named or not floats:
        return {}
    dtype = "float64" if any(item.dtype == "float64" for item in floats) else "float32"
    elements = max(item.elements for item in floats)
    return arithmetic(dtype, elements * sum(_COUNTED[operator] for operator in named))


@family("triton_", "cpp_fused_", "graph_", op_class=op_class)
def fused(call: OpCall) -> Cost | None:
    """Pointwise and reduction kernels."""
    if call.name.startswith("graph_") and "_cpp_fused_" not in call.name:
        return None
    return _touched(call)


def _factors(tensors: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return the first two adjacent tensors that can be multiplied; an addend may precede them."""
    for a, b in itertools.pairwise(tensors):
        ranks = len(a.shape), len(b.shape)
        if min(ranks) >= 2 and a.shape[-1] == b.shape[-2] and ranks[0] == ranks[1]:
            return a, b
    raise NotRecordedError("no two factors of a product were recorded")


@family("triton_tem_", op_class=op_class)
def template(call: OpCall) -> Cost | None:
    """Products: (..., A, B, ..., out). Attention: (query, key, value, ..., out).

    A block mask of flex attention skips scores that are not recorded: its FLOPs are those of the
    full square, an upper bound.
    """
    touched = _touched(call)
    traffic = Cost(
        bytes_read=touched.bytes_read,
        bytes_written=touched.bytes_written,
        upper_bound=touched.upper_bound,
    )
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
