"""Operators of torchvision with their own kernels.

Their reads depend on boxes and offsets that are not recorded: at most the whole image.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall
from boundby.ops.registry import formula
from boundby.ops.traffic import arithmetic, dense, flag, integer, maybe, moved, tensor

# A point between four pixels: their weighted sum.
_BILINEAR_OPERATIONS = 8


@formula("torchvision::nms", op_class="elementwise")
def nms(call: OpCall) -> Cost:
    """(boxes, scores, threshold): the indices of the kept boxes, at most all. The number
    of comparisons depends on the boxes and is not counted."""
    boxes, scores = tensor(call, 0), tensor(call, 1)
    return moved(reads=(boxes, scores), writes=(dense(scores.shape, "int64"),), upper_bound=True)


@formula("torchvision::roi_align", op_class="movement")
def roi_align(call: OpCall) -> Cost:
    """(input, boxes, scale, height, width, points a side of a cell, aligned)."""
    x, boxes = tensor(call, 0), tensor(call, 1)
    cells = (boxes.shape[0], x.shape[1], integer(call, 3), integer(call, 4))
    out = dense(cells, x.dtype)
    # Zero or less means adaptive: at least one point.
    points = max(1, integer(call, 5)) ** 2
    flops = arithmetic(x.dtype, _BILINEAR_OPERATIONS * points * out.elements)
    return moved(reads=(x, boxes), writes=(out,), flops=flops, upper_bound=True)


@formula("torchvision::_roi_align_backward", op_class="movement")
def roi_align_backward(call: OpCall) -> Cost:
    """(grad, boxes, scale, height, width, then the input's four extents)."""
    grad, boxes = tensor(call, 0), tensor(call, 1)
    image = dense([integer(call, position) for position in (5, 6, 7, 8)], grad.dtype)
    flops = arithmetic(grad.dtype, _BILINEAR_OPERATIONS * grad.elements)
    return moved(reads=(grad, boxes), writes=(image,), flops=flops, upper_bound=True)


@formula("torchvision::deform_conv2d", op_class="movement")
def deform_conv2d(call: OpCall) -> Cost:
    """(input, weight, offsets, mask, bias, ..., use mask): one column of pixels per position.

    The product of the columns with the weights is a separate operator inside it.
    """
    x, weight, offsets = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    mask = maybe(call, 3) if flag(call, 13, default=True) else None
    taps = weight.shape[-2] * weight.shape[-1]
    places = offsets.shape[0] * offsets.shape[-2] * offsets.shape[-1]
    columns = dense((x.shape[1] * taps, places), x.dtype)
    flops = arithmetic(x.dtype, _BILINEAR_OPERATIONS * columns.elements)
    return moved(reads=(x, offsets, mask), writes=(columns,), flops=flops, upper_bound=True)
