"""Convolutions in one, two or three dimensions, forward and backward.

FLOPs are those of the direct method, padding included, as in torch's counter: a Winograd or
FFT kernel does fewer and may exceed the roof. The backward of each operand costs as much as the
forward; torch's counter does not divide the weight's share by the groups.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Record, Tensor
from boundby.ops.contraction import matrix_flops
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import (
    argument,
    dense,
    flag,
    integers,
    mask,
    maybe,
    moved,
    partial,
    product,
    tensor,
)


class Signature(Record, frozen=True, kw_only=True):
    """Positions of an operator's arguments; None if it has no such argument."""

    stride: int
    padding: int
    dilation: int | None = None
    bias: int | None = None
    added: int | None = None
    transposed: int | None = None
    output_padding: int | None = None
    always_transposed: bool = False


_GENERIC = Signature(bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7)
_CUDNN = Signature(padding=2, stride=3, dilation=4)
_BIASED = Signature(bias=2, padding=3, stride=4, dilation=5)
_RELU = Signature(bias=2, stride=3, padding=4, dilation=5)
_ADD_RELU = Signature(added=2, bias=4, stride=5, padding=6, dilation=7)
_SLOW = Signature(bias=3, stride=4, padding=5)
_DILATED = Signature(bias=3, stride=4, padding=5, dilation=6)

SIGNATURES = {
    "aten::convolution": _GENERIC,
    "aten::_convolution": _GENERIC,
    "aten::convolution_overrideable": _GENERIC,
    "aten::cudnn_convolution": _CUDNN,
    "aten::cudnn_convolution_relu": _RELU,
    "aten::cudnn_convolution_add_relu": _ADD_RELU,
    "aten::cudnn_convolution_transpose": Signature(
        padding=2, output_padding=3, stride=4, dilation=5, always_transposed=True
    ),
    "aten::miopen_convolution": _BIASED,
    "aten::miopen_depthwise_convolution": _BIASED,
    "aten::miopen_convolution_relu": _RELU,
    "aten::miopen_convolution_add_relu": _ADD_RELU,
    "aten::miopen_convolution_transpose": Signature(
        bias=2, padding=3, output_padding=4, stride=5, dilation=6, always_transposed=True
    ),
    "aten::mkldnn_convolution": _BIASED,
    "mkldnn::_convolution_pointwise": _BIASED,
    "aten::_nnpack_spatial_convolution": Signature(bias=2, padding=3, stride=4),
    "aten::thnn_conv2d": _SLOW,
    "aten::_slow_conv2d_forward": _SLOW,
    "aten::slow_conv3d": _SLOW,
    "aten::slow_conv3d_forward": _SLOW,
    "aten::_conv_depthwise2d": _DILATED,
    "aten::conv_depthwise3d": _DILATED,
    "aten::slow_conv_dilated2d": _DILATED,
    "aten::slow_conv_dilated3d": _DILATED,
    "aten::slow_conv_transpose2d": Signature(
        bias=3, stride=4, padding=5, output_padding=6, dilation=7, always_transposed=True
    ),
    "aten::slow_conv_transpose3d": Signature(
        bias=3, stride=4, padding=5, output_padding=6, dilation=7, always_transposed=True
    ),
}


def _multiply_adds(x: Tensor, weight: Tensor, out: tuple[int, ...], transposed: bool) -> int:
    """Return the multiply-adds: each position of the smaller side times the filter, per group."""
    positions = x.shape[2:] if transposed else out
    return x.shape[0] * product(positions) * product(weight.shape)


def _touched(
    x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], out: tuple[int, ...]
) -> Tensor:
    """Return the share of the input that the filter reads: a quarter for 1x1 with stride 2."""
    elements = x.shape[0] * x.shape[1]
    for extent, width, step, count in zip(x.shape[2:], kernel, stride, out, strict=True):
        elements *= min(extent, width * count) if width < step else extent
    return partial(x, elements) if elements < x.distinct_elements else x


def _output(call: OpCall, signature: Signature, transposed: bool) -> tuple[int, ...]:
    x, weight = tensor(call, 0), tensor(call, 1)
    rank = len(x.shape) - 2
    stride = integers(call, signature.stride, rank)
    padding = integers(call, signature.padding, rank)
    ones = (1,) * rank
    dilation = ones if signature.dilation is None else integers(call, signature.dilation, rank)
    spread = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    axes = zip(x.shape[2:], spread, stride, padding, strict=True)
    if not transposed:
        return tuple((extent + 2 * p - width) // step + 1 for extent, width, step, p in axes)
    extra = (
        integers(call, signature.output_padding, rank)
        if signature.output_padding is not None
        else (0,) * rank
    )
    sizes = [(extent - 1) * step - 2 * p + width for extent, width, step, p in axes]
    return tuple(size + more for size, more in zip(sizes, extra, strict=True))


@formula(*SIGNATURES, op_class="contraction")
def convolve(call: OpCall) -> Cost:
    """[N, Ci, ...] with a filter [Co, Ci / groups, ...] (transposed: [Ci, Co / groups, ...])."""
    signature = SIGNATURES[call.name]
    x, weight = tensor(call, 0), tensor(call, 1)
    transposed = signature.always_transposed or (
        signature.transposed is not None and flag(call, signature.transposed)
    )
    spatial = _output(call, signature, transposed)
    channels = weight.shape[0]
    if transposed:
        channels = weight.shape[1] * _transposed_groups(call, signature)
    rank = len(spatial)
    touched = (
        x
        if transposed
        else _touched(x, weight.shape[2:], integers(call, signature.stride, rank), spatial)
    )
    bias = None if signature.bias is None else maybe(call, signature.bias)
    added = None if signature.added is None else maybe(call, signature.added)
    return moved(
        reads=(touched, weight, bias, added),
        writes=(dense((x.shape[0], channels, *spatial), x.dtype),),
        flops=matrix_flops(x.dtype, _multiply_adds(x, weight, spatial, transposed)),
    )


def _transposed_groups(call: OpCall, signature: Signature) -> int:
    """Return the groups: after dilation or, in the generic form, after the output padding."""
    if signature is _GENERIC:
        value = argument(call, 8)
    elif signature.bias == 3:
        return 1
    else:
        value = argument(call, (signature.dilation or 0) + 1)
    return value if isinstance(value, int) else 1


def _gradients(
    grad: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, ...], *, transposed: bool = False
) -> Cost:
    multiply_adds = _multiply_adds(x, weight, grad.shape[2:], transposed)
    for_input, for_weight, for_bias = wanted
    return moved(
        reads=(grad, x if for_weight else None, weight if for_input else None),
        writes=(
            dense(x.shape, x.dtype) if for_input else None,
            dense(weight.shape, weight.dtype) if for_weight else None,
            dense((grad.shape[1],), grad.dtype) if for_bias else None,
        ),
        flops=matrix_flops(x.dtype, multiply_adds * (for_input + for_weight)),
    )


@formula(
    *aten("convolution_backward convolution_backward_overrideable"),
    op_class="contraction",
)
def convolution_backward(call: OpCall) -> Cost:
    """Gradients of input, weight and bias, as selected by the mask."""
    grad, x, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    overrideable = call.name.endswith("overrideable")
    wanted = mask(call, 9 if overrideable else 10, 3)
    transposed = flag(call, 6 if overrideable else 7)
    return _gradients(grad, x, weight, wanted, transposed=transposed)


@formula("aten::_slow_conv2d_backward", "aten::slow_conv3d_backward", op_class="contraction")
def slow_conv_backward(call: OpCall) -> Cost:
    """The unfolding backward used without a convolution library."""
    grad, x, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return _gradients(grad, x, weight, mask(call, 6, 3))


@formula(
    *aten("mkldnn_convolution_backward mps_convolution_backward"),
    op_class="contraction",
)
def backend_convolution_backward(call: OpCall) -> Cost:
    """Input first, then the gradient."""
    x, grad, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return _gradients(grad, x, weight, mask(call, 7, 3))


@formula(
    *aten("cudnn_convolution_backward_input miopen_convolution_backward_input"),
    op_class="contraction",
)
def convolution_backward_input(call: OpCall) -> Cost:
    """Older torch: the input's size, the gradient, the weight.

    Traces of those versions omit the size: the input is then at least as large as the gradient.
    """
    grad, weight = tensor(call, 1), tensor(call, 2)
    least = (grad.shape[0], weight.shape[1], *grad.shape[2:])
    x = dense(integers(call, 0) if argument(call, 0) else least, grad.dtype)
    return _gradients(grad, x, weight, (True, False, False))


@formula(
    *aten("cudnn_convolution_backward_weight miopen_convolution_backward_weight"),
    op_class="contraction",
)
def convolution_backward_weight(call: OpCall) -> Cost:
    """Older torch: the weight's size, the gradient, the input."""
    grad, x = tensor(call, 1), tensor(call, 2)
    weight = dense(integers(call, 0), x.dtype)
    return _gradients(grad, x, weight, (False, True, False))
