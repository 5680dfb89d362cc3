"""Softmax and its variants, forward and backward.

Five operations per element forward: maximum, difference, exponential, sum, quotient.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import argument, arithmetic, flag, like, maybe, moved, scalar_type, tensor


def _forward(x: Tensor, *also: Tensor | None, dtype: str | None = None) -> Cost:
    return moved(
        reads=(x, *also), writes=(like(x, dtype=dtype),), flops=arithmetic(x.dtype, 5 * x.elements)
    )


@formula("aten::_softmax", "aten::_log_softmax", op_class="normalization")
def softmax(call: OpCall) -> Cost:
    """(self, dim, half_to_float): the flag widens the output, as under autocast."""
    return _forward(tensor(call, 0), dtype="float32" if flag(call, 2) else None)


@formula(
    *aten("softmax log_softmax _safe_softmax"),
    op_class="normalization",
)
def softmax_wrapper(call: OpCall) -> Cost:
    """(self, dim, dtype)."""
    return _forward(tensor(call, 0), dtype=scalar_type(argument(call, 2)))


@formula("aten::_masked_softmax", op_class="normalization")
def masked_softmax(call: OpCall) -> Cost:
    """The mask has a bool per score or per key."""
    return _forward(tensor(call, 0), maybe(call, 1))


@formula(
    *aten("_softmax_backward_data _log_softmax_backward_data"),
    op_class="normalization",
)
def softmax_backward(call: OpCall) -> Cost:
    """(grad, output, dim, input dtype): a product, a sum, a difference, a product."""
    grad, output = tensor(call, 0), tensor(call, 1)
    dtype = scalar_type(argument(call, 3))
    return moved(
        reads=(grad, output),
        writes=(like(grad, dtype=dtype),),
        flops=arithmetic(grad.dtype, 4 * grad.elements),
    )


@formula("aten::_masked_softmax_backward", op_class="normalization")
def masked_softmax_backward(call: OpCall) -> Cost:
    """The same with the mask read again."""
    grad, output = tensor(call, 0), tensor(call, 1)
    return moved(
        reads=(grad, output, maybe(call, 2)),
        writes=(like(grad),),
        flops=arithmetic(grad.dtype, 4 * grad.elements),
    )
