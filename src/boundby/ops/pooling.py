"""Pooling and interpolation, forward and backward: each position of the input once."""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import NotRecordedError, aten, formula
from boundby.ops.traffic import (
    argument,
    arithmetic,
    dense,
    flag,
    integers,
    like,
    mask,
    maybe,
    moved,
    product,
    tensor,
)


def _pooled(
    x: Tensor,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil: bool,
) -> tuple[int, ...]:
    rank = len(kernel)
    shape = list(x.shape)
    for axis in range(rank):
        spread = dilation[axis] * (kernel[axis] - 1) + 1
        room = x.shape[axis - rank] + 2 * padding[axis] - spread
        steps = -(-room // stride[axis]) if ceil else room // stride[axis]
        shape[axis - rank] = steps + 1
    return tuple(shape)


def _window(call: OpCall, rank: int, *, dilated: bool) -> tuple[int, ...]:
    """(self, kernel, stride, padding, [dilation,] ceil mode) -> the output's shape."""
    kernel = integers(call, 1, rank)
    stride = integers(call, 2, rank) if argument(call, 2) else kernel
    padding = integers(call, 3, rank) if argument(call, 3) is not None else (0,) * rank
    ones = (1,) * rank
    dilation = integers(call, 4, rank) if dilated and argument(call, 4) is not None else ones
    ceil = flag(call, 5 if dilated else 4)
    return _pooled(tensor(call, 0), kernel, stride, padding, dilation, ceil)


def _rank(name: str) -> int:
    return next(rank for rank in (1, 2, 3) if f"{rank}d" in name)


@formula(
    *aten("max_pool2d_with_indices max_pool3d_with_indices"),
    op_class="elementwise",
)
def max_pool_with_indices(call: OpCall) -> Cost:
    """The largest value of each window and its index."""
    x, rank = tensor(call, 0), _rank(call.name)
    out = _window(call, rank, dilated=True)
    work = product(out) * product(integers(call, 1, rank))
    return moved(
        reads=(x,),
        writes=(dense(out, x.dtype), dense(out, "int64")),
        flops=arithmetic(x.dtype, work),
    )


@formula(
    *aten("max_pool1d max_pool2d max_pool3d mkldnn_max_pool2d mkldnn_max_pool3d"),
    op_class="elementwise",
)
def max_pool(call: OpCall) -> Cost:
    """The largest of each window."""
    x, rank = tensor(call, 0), _rank(call.name)
    out = _window(call, rank, dilated=True)
    work = product(out) * product(integers(call, 1, rank))
    return moved(reads=(x,), writes=(dense(out, x.dtype),), flops=arithmetic(x.dtype, work))


@formula(
    *aten("avg_pool1d avg_pool2d avg_pool3d"),
    op_class="elementwise",
)
def avg_pool(call: OpCall) -> Cost:
    """The mean of each window."""
    x, rank = tensor(call, 0), _rank(call.name)
    out = _window(call, rank, dilated=False)
    work = product(out) * product(integers(call, 1, rank))
    return moved(reads=(x,), writes=(dense(out, x.dtype),), flops=arithmetic(x.dtype, work))


@formula(
    *aten(
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward "
        "fractional_max_pool2d_backward"
    ),
    op_class="elementwise",
)
def max_pool_backward(call: OpCall) -> Cost:
    """(grad, self, ..., indices): the indices replace the input, which is not read."""
    grad, x = tensor(call, 0), tensor(call, 1)
    places = [a for a in call.args[2:] if isinstance(a, Tensor) and a.dtype == "int64"]
    return moved(
        reads=(grad, *places[:1]), writes=(like(x),), flops=arithmetic(grad.dtype, grad.elements)
    )


@formula(
    *aten(
        "avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward "
        "_adaptive_avg_pool3d_backward mkldnn_adaptive_avg_pool2d_backward"
    ),
    op_class="elementwise",
)
def avg_pool_backward(call: OpCall) -> Cost:
    """(grad, self, ...): only the input's shape matters."""
    grad, x = tensor(call, 0), tensor(call, 1)
    return moved(reads=(grad,), writes=(like(x),), flops=arithmetic(grad.dtype, x.elements))


@formula(
    *aten(
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d "
        "adaptive_avg_pool2d adaptive_avg_pool3d mkldnn_adaptive_avg_pool2d"
    ),
    op_class="elementwise",
)
def adaptive_avg_pool(call: OpCall) -> Cost:
    """(self, output size)."""
    x, rank = tensor(call, 0), _rank(call.name)
    out = (*x.shape[:-rank], *integers(call, 1, rank))
    return moved(reads=(x,), writes=(dense(out, x.dtype),), flops=arithmetic(x.dtype, x.elements))


@formula(
    *aten("adaptive_max_pool2d adaptive_max_pool3d adaptive_max_pool1d"),
    op_class="elementwise",
)
def adaptive_max_pool(call: OpCall) -> Cost:
    """(self, output size) -> values and indices."""
    x, rank = tensor(call, 0), _rank(call.name)
    out = (*x.shape[:-rank], *integers(call, 1, rank))
    return moved(
        reads=(x,),
        writes=(dense(out, x.dtype), dense(out, "int64")),
        flops=arithmetic(x.dtype, x.elements),
    )


# Number of source pixels per output pixel, with two operations each.
_TAPS = {"nearest": 0, "linear": 2, "bilinear": 4, "bicubic": 16, "trilinear": 8, "lanczos": 36}
_UPSAMPLERS = aten(
    """
upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
_upsample_lanczos2d_aa
"""
)


def _taps(name: str) -> int:
    kind = max((kind for kind in _TAPS if kind in name), key=len)
    return _TAPS[kind]


@formula(*_UPSAMPLERS, op_class="elementwise")
def upsample(call: OpCall) -> Cost:
    """(self, output size, ...), or (self, None, ..., scale factors)."""
    x, rank = tensor(call, 0), _rank(call.name)
    if argument(call, 1):
        spatial = integers(call, 1, rank)
    else:
        factors = next((a for a in reversed(call.args) if isinstance(a, tuple) and a), None)
        if factors is None or not all(isinstance(f, int | float) for f in factors):
            raise NotRecordedError("neither size nor scale was recorded")
        axes = zip(x.shape[-rank:], factors, strict=True)
        spatial = tuple(int(extent * factor) for extent, factor in axes)
    out = dense((*x.shape[:-rank], *spatial), x.dtype)
    work = 2 * _taps(call.name) * out.elements
    return moved(reads=(x,), writes=(out,), flops=arithmetic(x.dtype, work))


@formula(*(f"{name}_backward" for name in _UPSAMPLERS), op_class="elementwise")
def upsample_backward(call: OpCall) -> Cost:
    """(grad, output size, input size, ...)."""
    grad = tensor(call, 0)
    work = max(1, 2 * _taps(call.name)) * grad.elements
    return moved(
        reads=(grad,),
        writes=(dense(integers(call, 2), grad.dtype),),
        flops=arithmetic(grad.dtype, work),
    )


@formula(
    *aten("grid_sampler_2d grid_sampler_3d cudnn_grid_sampler"),
    op_class="elementwise",
)
def grid_sampler(call: OpCall) -> Cost:
    """(input [N, C, ...], grid [N, ..., axes])."""
    x, grid = tensor(call, 0), tensor(call, 1)
    out = dense((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    work = 2 * 2 ** grid.shape[-1] * out.elements
    return moved(reads=(x, grid), writes=(out,), flops=arithmetic(x.dtype, work))


@formula(
    *aten("grid_sampler_2d_backward grid_sampler_3d_backward"),
    op_class="elementwise",
)
def grid_sampler_backward(call: OpCall) -> Cost:
    """(grad, input, grid, ..., mask)."""
    grad, x, grid = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    for_input, for_grid = mask(call, 6, 2)
    work = 4 * 2 ** grid.shape[-1] * grad.elements
    return moved(
        reads=(grad, x if for_grid else None, grid),
        writes=(like(x) if for_input else None, like(grid) if for_grid else None),
        flops=arithmetic(x.dtype, work),
    )


@formula("aten::max_unpool2d", "aten::max_unpool3d", op_class="movement")
def max_unpool(call: OpCall) -> Cost:
    """(self, indices, output size): values back at their indices."""
    x, places, rank = tensor(call, 0), tensor(call, 1), _rank(call.name)
    out = (*x.shape[:-rank], *integers(call, 2, rank))
    return moved(reads=(x, places, maybe(call, 3)), writes=(dense(out, x.dtype),))
