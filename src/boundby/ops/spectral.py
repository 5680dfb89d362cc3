"""Fourier transforms: one read, one write, 5 N log2 N operations (the usual convention).

This is for complex numbers; a transform from or to real numbers does half of it.
"""

from __future__ import annotations

import math

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import formula
from boundby.ops.traffic import arithmetic, dense, flag, integer, integers, moved, product, tensor

_COMPLEX = {"float32": "complex64", "float64": "complex128"}
_REAL = {"complex64": "float32", "complex128": "float64"}
_COMPLEX_OPERATIONS, _REAL_OPERATIONS = 5.0, 2.5  # times n log2 n, as usually counted for FFTs


def _transform(x: Tensor, out: Tensor, whole: Tensor, axes: tuple[int, ...], rate: float) -> Cost:
    """`whole` is the tensor that stores all values, without omitted conjugates."""
    length = product(whole.shape[axis] for axis in axes)
    operations = rate * whole.elements * math.log2(max(length, 1))
    return moved(reads=(x,), writes=(out,), flops=arithmetic(whole.dtype, operations))


def _with_extent(x: Tensor, axis: int, extent: int, dtype: str) -> Tensor:
    shape = list(x.shape)
    shape[axis] = extent
    return dense(shape, dtype)


@formula("aten::_fft_c2c", op_class="elementwise")
def complex_to_complex(call: OpCall) -> Cost:
    """(self, axes, normalization, forward)."""
    x = tensor(call, 0)
    out = dense(x.shape, x.dtype)
    return _transform(x, out, x, integers(call, 1), _COMPLEX_OPERATIONS)


@formula("aten::_fft_r2c", op_class="elementwise")
def real_to_complex(call: OpCall) -> Cost:
    """(self, axes, normalization, one side only): half of the last axis and one more."""
    x, axes = tensor(call, 0), integers(call, 1)
    extent = x.shape[axes[-1]]
    result_extent = extent // 2 + 1 if flag(call, 3, default=True) else extent
    out = _with_extent(x, axes[-1], result_extent, _COMPLEX[x.dtype])
    return _transform(x, out, x, axes, _REAL_OPERATIONS)


@formula("aten::_fft_c2r", op_class="elementwise")
def complex_to_real(call: OpCall) -> Cost:
    """(self, axes, normalization, extent of the last axis)."""
    x, axes = tensor(call, 0), integers(call, 1)
    out = _with_extent(x, axes[-1], integer(call, 3), _REAL[x.dtype])
    return _transform(x, out, out, axes, _REAL_OPERATIONS)
