"""Fused optimizers: one pass over parameters, gradients and state.

AdamW in float32 reads four tensors and writes three: 28 bytes per parameter.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import argument, arithmetic, flag, listed, read, written


def _present(call: OpCall, position: int) -> tuple[Tensor, ...]:
    """Return a list that may be empty: no momentum, no amsgrad."""
    return listed(call, position) if argument(call, position) else ()


def _update(call: OpCall, state: list[Tensor], scale: int, operations: int) -> Cost:
    """Parameters and state are read and written; scaled gradients are written back too."""
    parameters, grads = listed(call, 0), listed(call, 1)
    scaled = grads if isinstance(argument(call, scale), Tensor) else ()
    elements = sum(item.elements for item in parameters)
    return Cost(
        flops=arithmetic("float32", operations * elements),
        bytes_read=read(*parameters, *grads, *state)[0],
        bytes_written=written(*parameters, *state, *scaled),
        in_place=True,
    )


@formula(
    *aten("_fused_adam_ _fused_adamw_ _fused_adam _fused_adamw"),
    op_class="elementwise",
)
def adam(call: OpCall) -> Cost:
    """(parameters, gradients, first moments, second moments, their maxima, steps, ...)."""
    maxima = _present(call, 4) if flag(call, 11) else ()
    state = [*listed(call, 2), *listed(call, 3), *maxima]
    return _update(call, state, scale=13, operations=12)


@formula("aten::_fused_sgd_", "aten::_fused_sgd", op_class="elementwise")
def sgd(call: OpCall) -> Cost:
    """(parameters, gradients, momentum buffers or none, ...); the first step only writes them."""
    return _update(call, list(_present(call, 2)), scale=10, operations=4)


@formula("aten::_fused_adagrad_", "aten::_fused_adagrad", op_class="elementwise")
def adagrad(call: OpCall) -> Cost:
    """(parameters, gradients, sums, steps, ...)."""
    return _update(call, list(listed(call, 2)), scale=9, operations=7)
