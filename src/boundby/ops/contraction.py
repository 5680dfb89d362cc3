"""Matrix products: two FLOPs per multiply-add, on the matrix unit of the input dtype.

A bias or an accumulated matrix adds traffic but no matrix FLOPs, as in torch's own counter.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import NotRecordedError, aten, formula
from boundby.ops.traffic import (
    COMPLEXES,
    FLOATS,
    argument,
    dense,
    listed,
    mask,
    maybe,
    moved,
    product,
    scalar_type,
    tensor,
)

# A complex multiply-add is four real ones.
_REAL = {"complex64": "float32", "complex128": "float64"}
_COUNTED = (*FLOATS, *COMPLEXES, "int8", "uint8")


def matrix_flops(dtype: str, multiply_adds: float) -> dict[str, float]:
    """Return the FLOPs of these multiply-adds by matrix unit; wide integers have no such unit."""
    if dtype not in _COUNTED or not multiply_adds:
        return {}
    dtype_of_unit = "int8" if dtype == "uint8" else _REAL.get(dtype, dtype)
    return {f"matmul.{dtype_of_unit}": (8 if dtype in COMPLEXES else 2) * float(multiply_adds)}


def multiply(
    a: Tensor, b: Tensor, *, added: Tensor | None = None, dtype: str | None = None
) -> Cost:
    """[..., M, K] x [..., K, N], plus an optional addend."""
    *batch, m, k = a.shape
    *other_batch, inner, n = b.shape
    if inner != k:
        raise NotRecordedError(f"cannot multiply {a.shape} by {b.shape}")
    leading = tuple(batch) if product(batch) >= product(other_batch) else tuple(other_batch)
    return moved(
        reads=(a, b, added),
        writes=(dense((*leading, m, n), dtype or a.dtype),),
        flops=matrix_flops(a.dtype, product(leading) * m * k * n),
    )


def _accumulated(call: OpCall, beta_position: int) -> Tensor | None:
    """Return the addend of a product; with a factor of zero it is not read."""
    return None if argument(call, beta_position) == 0 else maybe(call, 0)


@formula("aten::mm", "aten::bmm", op_class="contraction")
def mm(call: OpCall) -> Cost:
    """[M, K] x [K, N], or a batch of them."""
    return multiply(tensor(call, 0), tensor(call, 1), dtype=scalar_type(argument(call, 2)))


@formula("aten::_int_mm", op_class="contraction")
def int_mm(call: OpCall) -> Cost:
    """int8 products accumulated in int32."""
    return multiply(tensor(call, 0), tensor(call, 1), dtype="int32")


@formula(
    *aten("addmm addmm_ baddbmm baddbmm_ _addmm_activation"),
    op_class="contraction",
)
def addmm(call: OpCall) -> Cost:
    """A product plus a matrix, row or scalar."""
    return multiply(tensor(call, 1), tensor(call, 2), added=_accumulated(call, 3))


@formula("aten::addbmm", "aten::addbmm_", op_class="contraction")
def addbmm(call: OpCall) -> Cost:
    """[B, M, K] x [B, K, N], summed over the batch into [M, N]."""
    a, b = tensor(call, 1), tensor(call, 2)
    batch, m, k = a.shape
    n = b.shape[-1]
    return moved(
        reads=(a, b, _accumulated(call, 3)),
        writes=(dense((m, n), a.dtype),),
        flops=matrix_flops(a.dtype, batch * m * k * n),
    )


@formula(
    *aten("linear mkldnn_linear"),
    "quantized::linear_dynamic_fp16_unpacked_weight",
    op_class="contraction",
)
def linear(call: OpCall) -> Cost:
    """[..., K] x [N, K] transposed, plus a row."""
    return _linear(tensor(call, 0), tensor(call, 1), maybe(call, 2))


def _linear(x: Tensor, weight: Tensor, *added: Tensor | None) -> Cost:
    *rows, k = x.shape
    n = weight.shape[0]
    if weight.shape[-1] != k:
        raise NotRecordedError(f"cannot apply a weight of {weight.shape} to {x.shape}")
    return moved(
        reads=(x, weight, *added),
        writes=(dense((*rows, n), x.dtype),),
        flops=matrix_flops(x.dtype, product(rows) * k * n),
    )


@formula("mkl::_mkl_linear", op_class="contraction")
def mkl_linear(call: OpCall) -> Cost:
    """Reads the packed weight; the original weight beside it gives the shape."""
    return _linear(tensor(call, 0), tensor(call, 2), maybe(call, 3))


@formula("mkldnn::_linear_pointwise", op_class="contraction")
def linear_pointwise(call: OpCall) -> Cost:
    """A linear layer with an activation, or with another tensor in second place, fused into it.

    The shape of a packed weight is not recorded; the output is then unknown.
    """
    x, second, third = tensor(call, 0), tensor(call, 1), maybe(call, 2)
    if third is not None and third.shape and len(third.shape) == 2:
        return _linear(x, third, second, maybe(call, 3))
    return _linear(x, second, third)


@formula("aten::linear_backward", "aten::mkldnn_linear_backward", op_class="contraction")
def linear_backward(call: OpCall) -> Cost:
    """One product for the input's gradient, one for the weight's."""
    x, grad, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    wanted = mask(call, 3, 3)
    multiply_adds = product(x.shape) * weight.shape[0]
    return moved(
        reads=(x if wanted[1] else None, grad, weight if wanted[0] else None),
        writes=(dense(x.shape, x.dtype) if wanted[0] else None, weight if wanted[1] else None),
        flops=matrix_flops(x.dtype, multiply_adds * (wanted[0] + wanted[1])),
    )


@formula("aten::matmul", op_class="contraction")
def matmul(call: OpCall) -> Cost:
    """Any ranks: a vector in the first place is a row, in the second place a column."""
    a, b = tensor(call, 0), tensor(call, 1)
    row = a.shape if len(a.shape) > 1 else (1, *a.shape)
    column = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = max(row[:-2], column[:-2], key=product)
    cost = product(batch) * row[-2] * row[-1] * column[-1]
    return moved(
        reads=(a, b),
        writes=(dense((*batch, row[-2], column[-1]), a.dtype),),
        flops=matrix_flops(a.dtype, cost),
    )


@formula("aten::mv", op_class="contraction")
def mv(call: OpCall) -> Cost:
    """[M, K] x [K]."""
    return _matrix_vector(tensor(call, 0), tensor(call, 1), None)


@formula("aten::addmv", "aten::addmv_", op_class="contraction")
def addmv(call: OpCall) -> Cost:
    """[M, K] x [K], added to [M]."""
    return _matrix_vector(tensor(call, 1), tensor(call, 2), _accumulated(call, 3))


def _matrix_vector(a: Tensor, x: Tensor, added: Tensor | None) -> Cost:
    m, k = a.shape
    return moved(
        reads=(a, x, added), writes=(dense((m,), a.dtype),), flops=matrix_flops(a.dtype, m * k)
    )


@formula("aten::dot", "aten::vdot", op_class="contraction")
def dot(call: OpCall) -> Cost:
    """[K] x [K]."""
    a, b = tensor(call, 0), tensor(call, 1)
    return moved(
        reads=(a, b), writes=(dense((), a.dtype),), flops=matrix_flops(a.dtype, a.elements)
    )


@formula("aten::addr", "aten::addr_", op_class="contraction")
def addr(call: OpCall) -> Cost:
    """[M] x [N], added to [M, N]."""
    (m,), (n,) = tensor(call, 1).shape, tensor(call, 2).shape
    added = _accumulated(call, 3)
    dtype = tensor(call, 1).dtype
    return moved(
        reads=(added, tensor(call, 1), tensor(call, 2)),
        writes=(dense((m, n), dtype),),
        flops=matrix_flops(dtype, m * n),
    )


@formula("aten::_scaled_mm", op_class="contraction")
def scaled_mm(call: OpCall) -> Cost:
    """float8 (or int8) products with scales; the output dtype is an argument."""
    a, b = tensor(call, 0), tensor(call, 1)
    out = scalar_type(argument(call, 6)) or "bfloat16"
    scales = moved(reads=(maybe(call, 2), maybe(call, 3)))
    return multiply(a, b, added=maybe(call, 4), dtype=out) + Cost(bytes_read=scales.bytes_read)


@formula("aten::_scaled_mm_v2", op_class="contraction")
def scaled_mm_v2(call: OpCall) -> Cost:
    """The same with lists of scales, block by block."""
    a, b = tensor(call, 0), tensor(call, 1)
    scales = moved(reads=(*listed(call, 2), *listed(call, 5)))
    out = scalar_type(argument(call, 9)) or "bfloat16"
    return multiply(a, b, added=maybe(call, 8), dtype=out) + Cost(bytes_read=scales.bytes_read)


@formula("aten::_grouped_mm", "aten::_scaled_grouped_mm", op_class="contraction")
def grouped_mm(call: OpCall) -> Cost:
    """Products of one group of rows each: [rows, K] x [G, K, N], and its three other forms.

    With the offsets along the shared axis (2d x 2d) every group has its own [M, N]; with three
    axes on both sides it is a batched product.
    """
    a, b = tensor(call, 0), tensor(call, 1)
    scaled = call.name.endswith("_scaled_grouped_mm")
    offsets = maybe(call, 4 if scaled else 2)
    dtype = scalar_type(argument(call, 7 if scaled else 4)) or ("bfloat16" if scaled else a.dtype)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    groups = offsets.elements if offsets else 1
    both_flat = len(a.shape) == len(b.shape) == 2
    out_shape: tuple[int, ...] = (groups, m, n) if both_flat else (m, n)
    multiply_adds = m * k * n
    if len(a.shape) == len(b.shape) == 3:
        out_shape, multiply_adds = (a.shape[0], m, n), a.shape[0] * m * k * n
    return moved(
        reads=(a, b, offsets),
        writes=(dense(out_shape, dtype),),
        flops=matrix_flops(a.dtype, multiply_adds),
    )


@formula("aten::_weight_int8pack_mm", op_class="contraction")
def weight_int8pack_mm(call: OpCall) -> Cost:
    """[M, K] x an int8 weight [N, K], scaled: arithmetic in the activation's dtype."""
    return _linear(tensor(call, 0), tensor(call, 1), maybe(call, 2))


@formula("aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu", op_class="contraction")
def weight_int4pack_mm(call: OpCall) -> Cost:
    """[M, K] x a packed int4 weight; N is known from its scales [K / group, N, 2]."""
    x, weight, scales = tensor(call, 0), tensor(call, 1), tensor(call, 3)
    (m, k), n = x.shape, scales.shape[1]
    return moved(
        reads=(x, weight, scales),
        writes=(dense((m, n), x.dtype),),
        flops=matrix_flops(x.dtype, m * k * n),
    )
