"""Layer, group, batch, RMS and weight normalization, forward and backward.

Each input is counted once, though a kernel whose rows exceed the chip's memory must read it
twice: batch norm in training does. The second read shows as time above the roofline minimum.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import (
    arithmetic,
    dense,
    flag,
    integer,
    integers,
    like,
    mask,
    maybe,
    moved,
    product,
    tensor,
)

# Operations per element: mean, variance, scale and shift; backward, two sums and their use.
FORWARD_OPERATIONS, BACKWARD_OPERATIONS = 8, 12
_STATISTICS = "float32"  # saved in float32 for every input dtype except float64


def _statistics_dtype(x: Tensor) -> str:
    return "float64" if x.dtype == "float64" else _STATISTICS


def _statistic(x: Tensor, *shape: int) -> Tensor:
    return dense(shape, _statistics_dtype(x))


def _channels(x: Tensor) -> int:
    return x.shape[1] if len(x.shape) > 1 else x.shape[0]


def _normalize(
    x: Tensor,
    reads: tuple[Tensor | None, ...],
    writes: tuple[Tensor | None, ...],
    operations: int = FORWARD_OPERATIONS,
) -> Cost:
    flops = arithmetic(x.dtype, operations * x.elements)
    return moved(reads=(x, *reads), writes=writes, flops=flops)


def _backward(
    x: Tensor, grad: Tensor, reads: tuple[Tensor | None, ...], writes: tuple[Tensor | None, ...]
) -> Cost:
    flops = arithmetic(x.dtype, BACKWARD_OPERATIONS * x.elements)
    return moved(reads=(x, grad, *reads), writes=writes, flops=flops)


@formula("aten::native_layer_norm", op_class="normalization")
def layer_norm(call: OpCall) -> Cost:
    """(input, normalized shape, weight, bias, eps) -> output, mean, rstd."""
    x, weight, bias = tensor(call, 0), maybe(call, 2), maybe(call, 3)
    rows = x.elements // max(1, product(integers(call, 1)))
    saved = _statistic(x, rows)
    return _normalize(x, (weight, bias), (like(x), saved, saved))


@formula("aten::native_layer_norm_backward", op_class="normalization")
def layer_norm_backward(call: OpCall) -> Cost:
    """(grad, input, normalized shape, mean, rstd, weight, bias, mask)."""
    grad, x, weight, bias = tensor(call, 0), tensor(call, 1), maybe(call, 5), maybe(call, 6)
    for_input, for_weight, for_bias = mask(call, 7, 3)
    writes = (
        like(x) if for_input else None,
        weight if for_weight else None,
        bias if for_bias else None,
    )
    return _backward(x, grad, (maybe(call, 3), maybe(call, 4), weight), writes)


@formula("aten::_fused_rms_norm", op_class="normalization")
def rms_norm(call: OpCall) -> Cost:
    """(input, normalized shape, weight, eps) -> output, rstd."""
    x, weight = tensor(call, 0), maybe(call, 2)
    rows = x.elements // max(1, product(integers(call, 1)))
    return _normalize(x, (weight,), (like(x), _statistic(x, rows)), operations=4)


@formula("aten::rms_norm", op_class="normalization")
def rms_norm_wrapper(call: OpCall) -> Cost:
    """Eager torch builds it from pointwise operators, which are recorded inside it."""
    x, weight = tensor(call, 0), maybe(call, 2)
    return _normalize(x, (weight,), (like(x),), operations=4)


@formula("aten::_fused_rms_norm_backward", op_class="normalization")
def rms_norm_backward(call: OpCall) -> Cost:
    """(grad, input, normalized shape, rstd, weight, mask)."""
    grad, x, weight = tensor(call, 0), tensor(call, 1), maybe(call, 4)
    for_input, for_weight = mask(call, 5, 2)
    writes = (like(x) if for_input else None, weight if for_weight else None)
    return _backward(x, grad, (maybe(call, 3), weight), writes)


@formula("aten::native_group_norm", op_class="normalization")
def group_norm(call: OpCall) -> Cost:
    """(input, weight, bias, N, C, HxW, groups, eps) -> output, mean, rstd of each group."""
    x, weight, bias = tensor(call, 0), maybe(call, 1), maybe(call, 2)
    saved = _statistic(x, integer(call, 3), integer(call, 6))
    return _normalize(x, (weight, bias), (like(x), saved, saved))


@formula("aten::native_group_norm_backward", op_class="normalization")
def group_norm_backward(call: OpCall) -> Cost:
    """(grad, input, mean, rstd, weight, N, C, HxW, groups, mask)."""
    grad, x, weight = tensor(call, 0), tensor(call, 1), maybe(call, 4)
    for_input, for_weight, for_bias = mask(call, 9, 3)
    writes = (
        like(x) if for_input else None,
        weight if for_weight else None,
        weight if for_bias else None,
    )
    return _backward(x, grad, (maybe(call, 2), maybe(call, 3), weight), writes)


def _batch_norm(call: OpCall, training: bool) -> Cost:
    x, weight, bias = tensor(call, 0), maybe(call, 1), maybe(call, 2)
    running = (maybe(call, 3), maybe(call, 4))
    saved = _statistic(x, _channels(x))
    written_statistics = (saved, saved, *running) if training else ()
    return _normalize(x, (weight, bias, *running), (like(x), *written_statistics))


@formula(
    *aten("native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm"),
    op_class="normalization",
)
def batch_norm(call: OpCall) -> Cost:
    """(input, weight, bias, running mean, running variance, training, momentum, eps).

    In training the running statistics are updated and the batch's own kept for the backward.
    """
    return _batch_norm(call, training=flag(call, 5, default=True))


@formula("aten::_batch_norm_with_update", op_class="normalization")
def batch_norm_with_update(call: OpCall) -> Cost:
    """Training, as the name says."""
    return _batch_norm(call, training=True)


@formula(
    *aten("_batch_norm_no_update _native_batch_norm_legit_no_training"),
    op_class="normalization",
)
def batch_norm_no_update(call: OpCall) -> Cost:
    """Inference, as the name says."""
    return _batch_norm(call, training=False)


@formula(
    *aten("native_batch_norm_backward batch_norm_backward"),
    op_class="normalization",
)
def batch_norm_backward(call: OpCall) -> Cost:
    """(grad, input, weight, running two, saved two, training, eps, mask)."""
    grad, x, weight = tensor(call, 0), tensor(call, 1), maybe(call, 2)
    wanted = mask(call, 9, 3)
    gradient = _statistic(x, _channels(x))
    writes = (like(x) if wanted[0] else None, *(gradient for on in wanted[1:] if on))
    return _backward(x, grad, (weight, maybe(call, 5), maybe(call, 6)), writes)


@formula(
    *aten("cudnn_batch_norm_backward miopen_batch_norm_backward"),
    op_class="normalization",
)
def library_batch_norm_backward(call: OpCall) -> Cost:
    """(input, grad, weight, running two, saved two, eps): always all three gradients."""
    x, grad, weight = tensor(call, 0), tensor(call, 1), maybe(call, 2)
    gradient = _statistic(x, _channels(x))
    saved = (maybe(call, 5), maybe(call, 6))
    return _backward(x, grad, (weight, *saved), (like(x), gradient, gradient))


@formula("aten::batch_norm_stats", "aten::batch_norm_update_stats", op_class="normalization")
def batch_norm_stats(call: OpCall) -> Cost:
    """Two numbers per channel."""
    x = tensor(call, 0)
    saved = _statistic(x, _channels(x))
    return _normalize(x, (), (saved, saved), operations=4)


@formula("aten::batch_norm_elemt", op_class="normalization")
def batch_norm_elemt(call: OpCall) -> Cost:
    """(input, weight, bias, mean, invstd): apply the statistics of all ranks."""
    return _normalize(
        tensor(call, 0), tuple(maybe(call, i) for i in (1, 2, 3, 4)), (like(tensor(call, 0)),), 4
    )


@formula(
    *aten("batch_norm_gather_stats batch_norm_gather_stats_with_counts"),
    op_class="normalization",
)
def batch_norm_gather_stats(call: OpCall) -> Cost:
    """Combine the statistics of all ranks; the input is not read."""
    mean, invstd, running = tensor(call, 1), tensor(call, 2), (maybe(call, 3), maybe(call, 4))
    channels = dense(mean.shape[-1:], mean.dtype)
    return moved(
        reads=(mean, invstd, *running),
        writes=(channels, channels, *running),
        flops=arithmetic(mean.dtype, 6 * mean.elements),
    )


@formula("aten::batch_norm_backward_reduce", op_class="normalization")
def batch_norm_backward_reduce(call: OpCall) -> Cost:
    """(grad, input, mean, invstd, weight, three flags): at most four sums per channel."""
    grad, x = tensor(call, 0), tensor(call, 1)
    sums = 2 * flag(call, 5, True) + flag(call, 6, True) + flag(call, 7, True)
    gradient = _statistic(x, _channels(x))
    flops = arithmetic(x.dtype, 4 * x.elements)
    reads = (grad, x, maybe(call, 2), maybe(call, 3), maybe(call, 4))
    return moved(reads=reads, writes=(gradient,) * sums, flops=flops)


@formula("aten::batch_norm_backward_elemt", op_class="normalization")
def batch_norm_backward_elemt(call: OpCall) -> Cost:
    """(grad, input, mean, invstd, weight, two sums, counts)."""
    grad, x = tensor(call, 0), tensor(call, 1)
    reads = tuple(maybe(call, i) for i in (2, 3, 4, 5, 6))
    flops = arithmetic(x.dtype, 6 * x.elements)
    return moved(reads=(grad, x, *reads), writes=(like(x),), flops=flops)


@formula("aten::_weight_norm_interface", op_class="normalization")
def weight_norm(call: OpCall) -> Cost:
    """(v, g, dim) -> weight, norms."""
    v, g = tensor(call, 0), tensor(call, 1)
    return _normalize(v, (g,), (like(v), _statistic(g, g.elements)), operations=4)


@formula("aten::_weight_norm_interface_backward", op_class="normalization")
def weight_norm_backward(call: OpCall) -> Cost:
    """(grad, v, g, norms, dim) -> gradients of v and g."""
    grad, v, g, norms = (tensor(call, i) for i in range(4))
    return _backward(v, grad, (g, norms), (like(v), like(g)))
