"""Losses, forward and backward. Cross entropy is a log-softmax and a negative log-likelihood."""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import argument, arithmetic, dense, like, maybe, moved, partial, tensor

NO_REDUCTION = 0  # value in torch


def _result(call: OpCall, position: int, shape: Tensor) -> Tensor:
    """Return the result: one value per element without a reduction, otherwise one number."""
    unreduced = argument(call, position) == NO_REDUCTION
    return like(shape) if unreduced else dense((), shape.dtype)


@formula("aten::nll_loss_forward", "aten::nll_loss2d_forward", op_class="elementwise")
def nll_loss(call: OpCall) -> Cost:
    """(log probabilities, targets, weight, reduction): one log probability per target."""
    logs, target = tensor(call, 0), tensor(call, 1)
    picked = dense(target.shape, logs.dtype)
    return moved(
        reads=(partial(logs, target.elements), target, maybe(call, 2)),
        writes=(_result(call, 3, picked), dense((), logs.dtype)),
        flops=arithmetic(logs.dtype, target.elements),
    )


@formula("aten::nll_loss_backward", "aten::nll_loss2d_backward", op_class="elementwise")
def nll_loss_backward(call: OpCall) -> Cost:
    """(grad, log probabilities, targets, weight, ...): one entry per target; the zeros are
    written by another operator, so only the shape of the log probabilities matters."""
    grad, logs, target = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(
        reads=(grad, target, maybe(call, 3), maybe(call, 6)),
        writes=(partial(logs, target.elements),),
        flops=arithmetic(logs.dtype, target.elements),
    )


# name -> position of the reduction, operations per element
_POINTWISE_LOSSES = {
    "aten::mse_loss": (2, 3),
    "aten::smooth_l1_loss": (2, 4),
    "aten::huber_loss": (2, 4),
    "aten::soft_margin_loss": (2, 4),
    "aten::l1_loss": (2, 3),
    "aten::kl_div": (2, 4),
    "aten::binary_cross_entropy": (3, 5),
    "aten::binary_cross_entropy_with_logits": (4, 8),
}


@formula(*_POINTWISE_LOSSES, op_class="elementwise")
def pointwise_loss(call: OpCall) -> Cost:
    """(input, target, optional weights, reduction)."""
    reduction, operations = _POINTWISE_LOSSES[call.name]
    x, target = tensor(call, 0), tensor(call, 1)
    weights = [maybe(call, position) for position in range(2, reduction)]
    return moved(
        reads=(x, target, *weights),
        writes=(_result(call, reduction, x),),
        flops=arithmetic(x.dtype, operations * x.elements),
    )


@formula(
    *aten(
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward "
        "binary_cross_entropy_backward"
    ),
    op_class="elementwise",
)
def pointwise_loss_backward(call: OpCall) -> Cost:
    """(grad, input, target, optional weights, ...) -> the input's gradient."""
    grad, x, target = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    weight = maybe(call, 3) if "binary_cross_entropy" in call.name else None
    return moved(
        reads=(grad, x, target, weight),
        writes=(like(x),),
        flops=arithmetic(x.dtype, 4 * x.elements),
    )


@formula("aten::multi_margin_loss", "aten::multilabel_margin_loss_forward", op_class="elementwise")
def margin_loss(call: OpCall) -> Cost:
    """Compares every class with the target."""
    x, target = tensor(call, 0), tensor(call, 1)
    return moved(
        reads=(x, target), writes=(dense((), x.dtype),), flops=arithmetic(x.dtype, 3 * x.elements)
    )


@formula(
    *aten("multi_margin_loss_backward multilabel_margin_loss_backward"),
    op_class="elementwise",
)
def margin_loss_backward(call: OpCall) -> Cost:
    """The gradient of every class."""
    grad, x, target = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    flops = arithmetic(x.dtype, 3 * x.elements)
    return moved(reads=(grad, x, target), writes=(like(x),), flops=flops)


@formula("aten::_ctc_loss", "aten::_cudnn_ctc_loss", op_class="elementwise")
def ctc_loss(call: OpCall) -> Cost:
    """Log probabilities [T, N, C] and targets; at least one alpha [N, T, 2L + 1] is written."""
    logs, target = tensor(call, 0), tensor(call, 1)
    steps, batch = logs.shape[0], logs.shape[1]
    longest = target.shape[-1] if len(target.shape) == 2 else target.elements // max(1, batch)
    alpha = dense((batch, steps, 2 * longest + 1), logs.dtype)
    return moved(
        reads=(logs, target), writes=(alpha,), flops=arithmetic(logs.dtype, 6 * alpha.elements)
    )


@formula("aten::_ctc_loss_backward", op_class="elementwise")
def ctc_loss_backward(call: OpCall) -> Cost:
    """(grad, log probabilities, targets, lengths, lengths, loss, alpha)."""
    grad, logs, target, alpha = (tensor(call, i) for i in (0, 1, 2, 6))
    flops = arithmetic(logs.dtype, 8 * alpha.elements)
    return moved(reads=(grad, logs, target, alpha), writes=(like(logs),), flops=flops)
