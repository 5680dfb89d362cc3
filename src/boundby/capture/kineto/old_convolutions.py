"""Sizes of convolutions that torch before 1.10 did not record: of three calls, each has two.

A convolution's stride and padding, and the size that its gradients are given, are lists of numbers,
which these profilers left out. The forward has the input and the weight; the gradients have the
output's size.
"""

from __future__ import annotations

import msgspec
import numpy as np

from boundby.capture.kineto.nesting import Rows
from boundby.model import Argument, OpCall, Tensor

_GRADIENTS = ("convolution_backward_input", "convolution_backward_weight")
_PADDING, _STRIDE, _DILATION = 2, 3, 4  # arguments of the forward


def complete(call: Rows, calls: list[OpCall], forward: Rows) -> Rows:
    """The number of each row's call; calls that a gradient completes, or that its forward does, are
    added to the list."""
    lacking = [
        one.name.endswith(_GRADIENTS) and len(one.args) > _DILATION and one.args[0] is None
        for one in calls
    ]
    if not any(lacking):
        return call
    found, numbers = call.copy(), dict[OpCall, int]()

    def number(one: OpCall) -> int:
        if one not in numbers:
            numbers[one] = len(calls)
            calls.append(one)
        return numbers[one]

    for row in np.flatnonzero(np.array([*lacking, False])[call] & (forward >= 0)).tolist():
        before = int(forward[row])
        gradient, made = calls[call[row]], calls[call[before]] if call[before] >= 0 else None
        sizes = _sizes(gradient, made)
        if made is None or sizes is None:
            continue
        image, weight, output = sizes
        whole = image if gradient.name.endswith("input") else weight
        found[row] = number(_with(gradient, {0: whole.shape}))
        if (stride := _stride(image, weight, output)) is not None:
            found[before] = number(_with(made, stride))
    return found


def _sizes(gradient: OpCall, made: OpCall | None) -> tuple[Tensor, Tensor, Tensor] | None:
    """Input, weight and output of a convolution."""
    if made is None or not made.name.endswith("_convolution") or len(made.args) <= _DILATION:
        return None
    image, weight, output = made.args[0], made.args[1], gradient.args[1]
    if not all(isinstance(one, Tensor) for one in (image, weight, output)):
        return None
    assert isinstance(image, Tensor) and isinstance(weight, Tensor) and isinstance(output, Tensor)
    alike = len(image.shape) == len(weight.shape) == len(output.shape) > 2
    return (image, weight, output) if alike else None


def _stride(image: Tensor, weight: Tensor, output: Tensor) -> dict[int, Argument] | None:
    """Padding, stride and dilation with which the convolution makes an output of this size."""
    strides, paddings = list[int](), list[int]()
    for extent, width, count in zip(
        image.shape[2:], weight.shape[2:], output.shape[2:], strict=True
    ):
        stride = max(1, round(extent / max(1, count)))
        padding = max(0, -(-((count - 1) * stride + width - extent) // 2))
        if (extent + 2 * padding - width) // stride + 1 != count:
            return None
        strides.append(stride)
        paddings.append(padding)
    return {_PADDING: tuple(paddings), _STRIDE: tuple(strides), _DILATION: (1,) * len(strides)}


def _with(call: OpCall, given: dict[int, Argument]) -> OpCall:
    args = tuple(given.get(place, argument) for place, argument in enumerate(call.args))
    return msgspec.structs.replace(call, args=args)
