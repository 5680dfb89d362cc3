"""Reductions and scans: read the input, write the result, one operation per element."""

from __future__ import annotations

from boundby.model import Argument, Cost, OpCall, Tensor
from boundby.ops.pointwise import apply
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import (
    argument,
    arithmetic,
    dense,
    flag,
    integers,
    like,
    moved,
    scalar_type,
    tensor,
)


def reduced_axes(x: Tensor, dims: Argument) -> set[int]:
    """Return the given axes as non-negative numbers; none given means all."""
    rank = len(x.shape)
    if isinstance(dims, int) and not isinstance(dims, bool):
        dims = (dims,)
    named = {axis % rank for axis in dims} if isinstance(dims, tuple | list) and rank else set()
    return named or set(range(rank))


def summed_axes(call: OpCall) -> set[int]:
    """The reduced axes of a sum or a mean: (self, dtype) is over everything, or (self, dims,
    keepdim, dtype)."""
    return reduced_axes(tensor(call, 0), argument(call, 1) if len(call.args) > 2 else None)


def reduced(x: Tensor, dims: Argument, keepdim: bool = False) -> tuple[int, ...]:
    """Return the shape without these axes; none given means all."""
    reduced_over = reduced_axes(x, dims)
    kept = [1 if axis in reduced_over else extent for axis, extent in enumerate(x.shape)]
    return tuple(kept) if keepdim else tuple(e for a, e in enumerate(kept) if a not in reduced_over)


def reduce(x: Tensor, shape: tuple[int, ...], *dtypes: str, operations: float = 1) -> Cost:
    """Reads the input, writes one result per dtype."""
    return moved(
        reads=(x,),
        writes=[dense(shape, dtype) for dtype in dtypes],
        flops=arithmetic(x.dtype, operations * x.distinct_elements),
    )


@formula(
    *aten("sum mean nansum prod nanmean"),
    op_class="elementwise",
)
def total(call: OpCall) -> Cost:
    """(self, dtype) over everything, or (self, dims, keepdim, dtype)."""
    x = tensor(call, 0)
    everything = len(call.args) < 3
    dtype = scalar_type(argument(call, 1 if everything else 3))
    shape = () if everything else reduced(x, argument(call, 1), flag(call, 2))
    integral = x.dtype == "bool" or x.dtype.lstrip("u").startswith("int")
    return reduce(x, shape, dtype or ("int64" if integral else x.dtype))


@formula("aten::amax", "aten::amin", "aten::logsumexp", op_class="elementwise")
def extreme(call: OpCall) -> Cost:
    """(self, dims, keepdim); logsumexp exponentiates on the way."""
    x = tensor(call, 0)
    operations = 3 if call.name.endswith("logsumexp") else 1
    shape = reduced(x, argument(call, 1), flag(call, 2))
    return reduce(x, shape, x.dtype, operations=operations)


@formula("aten::max", "aten::min", op_class="elementwise")
def maximum(call: OpCall) -> Cost:
    """Over everything, over one axis with indices, or of two tensors elementwise."""
    x, second = tensor(call, 0), argument(call, 1)
    if isinstance(second, Tensor):
        return apply(call, 2, 1)
    if second is None:
        return reduce(x, (), x.dtype)
    return reduce(x, reduced(x, second, flag(call, 2)), x.dtype, "int64")


@formula("aten::argmax", "aten::argmin", op_class="elementwise")
def argmax(call: OpCall) -> Cost:
    """Returns indices only."""
    x = tensor(call, 0)
    return reduce(x, reduced(x, argument(call, 1), flag(call, 2)), "int64")


@formula(
    *aten("median nanmedian mode cummax cummin"),
    op_class="elementwise",
)
def values_and_places(call: OpCall) -> Cost:
    """A scan keeps the shape, a reduction loses the axis; both return values and indices."""
    x = tensor(call, 0)
    if call.name.startswith("aten::cum"):
        return reduce(x, x.shape, x.dtype, "int64")
    axis = argument(call, 1)
    if axis is None and not call.name.endswith("mode"):
        return reduce(x, (), x.dtype)
    shape = reduced(x, -1 if axis is None else axis, flag(call, 2))
    return reduce(x, shape, x.dtype, "int64")


@formula("aten::aminmax", "aten::_aminmax", op_class="elementwise")
def aminmax(call: OpCall) -> Cost:
    """Minimum and maximum."""
    x = tensor(call, 0)
    return reduce(x, reduced(x, argument(call, 1)), x.dtype, x.dtype, operations=2)


@formula(
    *aten("any all _is_all_true _is_any_true"),
    op_class="elementwise",
)
def truth(call: OpCall) -> Cost:
    """(self), or (self, dims, keepdim)."""
    x = tensor(call, 0)
    return reduce(x, reduced(x, argument(call, 1), flag(call, 2)), "bool")


@formula("aten::count_nonzero", op_class="elementwise")
def count_nonzero(call: OpCall) -> Cost:
    """Returns one number or one per row."""
    x = tensor(call, 0)
    return reduce(x, reduced(x, argument(call, 1)), "int64")


@formula(
    *aten("var std var_mean std_mean"),
    op_class="elementwise",
)
def variance(call: OpCall) -> Cost:
    """The axes are second unless that is the `unbiased` flag; `keepdim` is last."""
    x, dims = tensor(call, 0), argument(call, 1)
    axes = None if isinstance(dims, bool) else dims
    results = (x.dtype, x.dtype) if call.name.endswith("_mean") else (x.dtype,)
    return reduce(x, reduced(x, axes, flag(call, 3)), *results, operations=4)


@formula(
    *aten("norm linalg_vector_norm linalg_norm"),
    op_class="elementwise",
)
def norm(call: OpCall) -> Cost:
    """(self, order, dims, keepdim)."""
    x = tensor(call, 0)
    dims = argument(call, 2) if isinstance(argument(call, 2), tuple | list) else None
    return reduce(x, reduced(x, dims, flag(call, 3)), x.dtype, operations=2)


@formula(
    *aten("cumsum cumprod cumsum_ cumprod_ logcumsumexp _logcumsumexp"),
    op_class="elementwise",
)
def scan(call: OpCall) -> Cost:
    """Writes as many elements as it reads; sums of bools and small integers are int64."""
    x = tensor(call, 0)
    integral = x.dtype == "bool" or x.dtype.lstrip("u").startswith("int")
    dtype = scalar_type(argument(call, 2)) or ("int64" if integral else x.dtype)
    return reduce(x, x.shape, x.dtype if call.name.endswith("_") else dtype)


@formula("aten::trace", op_class="elementwise")
def trace(call: OpCall) -> Cost:
    """The diagonal."""
    x = tensor(call, 0)
    return reduce(dense((min(x.shape),), x.dtype), (), x.dtype)


@formula("aten::value_selecting_reduction_backward", op_class="movement")
def value_selecting_reduction_backward(call: OpCall) -> Cost:
    """(grad, dim, indices, sizes, keepdim): zeros, with the gradient at the selected indices."""
    grad, places = tensor(call, 0), tensor(call, 2)
    return moved(reads=(grad, places), writes=(dense(integers(call, 3), grad.dtype),))


@formula("aten::_cdist_forward", op_class="elementwise")
def cdist(call: OpCall) -> Cost:
    """[..., P, M] against [..., R, M]: a difference, a power and a sum for each."""
    a, b = tensor(call, 0), tensor(call, 1)
    distances = (*a.shape[:-1], b.shape[-2])
    work = 3 * dense(distances, a.dtype).elements * a.shape[-1]
    return moved(reads=(a, b), writes=(dense(distances, a.dtype),), flops=arithmetic(a.dtype, work))


@formula("aten::_cdist_backward", op_class="elementwise")
def cdist_backward(call: OpCall) -> Cost:
    """(grad, a, b, p, distances): for each distance its share of the gradient of every entry."""
    grad, a, b, distances = tensor(call, 0), tensor(call, 1), tensor(call, 2), tensor(call, 4)
    flops = arithmetic(a.dtype, 4 * distances.elements * a.shape[-1])
    return moved(reads=(grad, a, b, distances), writes=(like(a),), flops=flops)


@formula("aten::renorm", "aten::renorm_", op_class="elementwise")
def renorm(call: OpCall) -> Cost:
    """Slices scaled down to a norm."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(like(x),), flops=arithmetic(x.dtype, 3 * x.elements))
