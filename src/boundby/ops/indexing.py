"""Gathering and scattering: indices, the rows they select (at most the whole table), the result.

Two indices may select the same row, so the bytes read from a table are marked as an upper bound.
Operators that start from zeros or from a copy do that with an operator of its own (`zero_`,
`copy_`); only the scattering itself is counted here.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import NotRecordedError, aten, formula
from boundby.ops.traffic import (
    argument,
    arithmetic,
    broadcast,
    dense,
    flag,
    integer,
    integers,
    like,
    maybe,
    moved,
    partial,
    product,
    tensor,
)


def gathered(table: Tensor, index: Tensor | None, out: Tensor, *also: Tensor | None) -> Cost:
    """Reads as many elements of the table as it writes."""
    return moved(
        reads=(partial(table, out.elements), index, *also), writes=(out,), upper_bound=True
    )


def scattered(
    target: Tensor, source: Tensor | None, index: Tensor | None, elements: int, *, add: bool
) -> Cost:
    """Writes as many elements of the target as there are values; adding also reads them."""
    touched = partial(target, elements)
    return moved(
        reads=(source, index, touched if add else None),
        writes=(touched,),
        flops=arithmetic(target.dtype, elements if add else 0),
        upper_bound=True,
    )


@formula("aten::embedding", op_class="movement")
def embedding(call: OpCall) -> Cost:
    """(weight [V, D], indices)."""
    weight, index = tensor(call, 0), tensor(call, 1)
    return gathered(weight, index, dense((*index.shape, weight.shape[-1]), weight.dtype))


@formula("aten::embedding_dense_backward", op_class="movement")
def embedding_dense_backward(call: OpCall) -> Cost:
    """(grad, indices, V, ...): gradients summed into rows; other rows stay zero."""
    grad, index = tensor(call, 0), tensor(call, 1)
    rows = dense((integer(call, 2), grad.shape[-1]), grad.dtype)
    return moved(
        reads=(grad, index),
        writes=(partial(rows, grad.elements),),
        flops=arithmetic(grad.dtype, grad.elements),
        upper_bound=True,
    )


@formula("aten::_embedding_bag", "aten::_embedding_bag_forward_only", op_class="movement")
def embedding_bag(call: OpCall) -> Cost:
    """(weight, indices, offsets, ..., per-sample weights): one sum of rows per bag."""
    weight, index, offsets = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    bags = offsets.elements - flag(call, 7)
    width = weight.shape[-1]
    return moved(
        reads=(partial(weight, index.elements * width), index, offsets, maybe(call, 6)),
        writes=(dense((bags, width), weight.dtype), like(index)),
        flops=arithmetic(weight.dtype, index.elements * width),
        upper_bound=True,
    )


@formula("aten::_embedding_bag_dense_backward", op_class="movement")
def embedding_bag_dense_backward(call: OpCall) -> Cost:
    """(grad [bags, D], indices, offset2bag, bag sizes, ..., V): one row per index."""
    grad, index, bag = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    rows = dense((integer(call, 5), grad.shape[-1]), grad.dtype)
    touched = index.elements * grad.shape[-1]
    return moved(
        reads=(grad, index, bag),
        writes=(partial(rows, touched),),
        flops=arithmetic(grad.dtype, touched),
        upper_bound=True,
    )


@formula("aten::index_select", op_class="movement")
def index_select(call: OpCall) -> Cost:
    """(self, dim, index)."""
    x, dim, index = tensor(call, 0), integer(call, 1), tensor(call, 2)
    shape = list(x.shape)
    if shape:
        shape[dim] = index.elements
    return gathered(x, index, dense(shape, x.dtype))


@formula("aten::gather", op_class="movement")
def gather(call: OpCall) -> Cost:
    """(self, dim, index): one element per index."""
    x, index = tensor(call, 0), tensor(call, 2)
    return gathered(x, index, dense(index.shape, x.dtype))


@formula("aten::take", op_class="movement")
def take(call: OpCall) -> Cost:
    """(self, index), as if self were flat."""
    x, index = tensor(call, 0), tensor(call, 1)
    return gathered(x, index, dense(index.shape, x.dtype))


def _indices(call: OpCall, position: int) -> list[Tensor | None]:
    """Return the index of each dimension; profilers often omit this list, always if it contains
    None."""
    value = argument(call, position)
    if isinstance(value, Tensor):
        return [value]
    if not isinstance(value, tuple | list) or not any(isinstance(i, Tensor) for i in value):
        raise NotRecordedError(f"{call.name}: its indices were not recorded")
    return [item if isinstance(item, Tensor) else None for item in value]


def _indexed(x: Tensor, indices: list[Tensor | None]) -> Tensor:
    """Return the result of advanced indexing; a mask may keep everything."""
    if any(index is not None and index.dtype in ("bool", "uint8") for index in indices):
        return like(x)
    named = [index.shape for index in indices if index is not None]
    full_extents = [x.shape[a] for a, index in enumerate(indices) if index is None]
    return dense((*broadcast(*named), *full_extents, *x.shape[len(indices) :]), x.dtype)


@formula(
    *aten("index _unsafe_index _unsafe_masked_index"),
    op_class="movement",
)
def index(call: OpCall) -> Cost:
    """(self, indices)."""
    x = tensor(call, 0)
    indices = _indices(call, 2 if call.name.endswith("masked_index") else 1)
    out = _indexed(x, indices)
    return gathered(x, None, out, *indices)


@formula(
    *aten("index_put_ index_put _index_put_impl_ _unsafe_index_put"),
    op_class="movement",
)
def index_put(call: OpCall) -> Cost:
    """(self, indices, values, accumulate). If the indices are not recorded, the values give
    their number, unless they are broadcast."""
    x, values, add = tensor(call, 0), tensor(call, 2), flag(call, 3)
    try:
        indices = _indices(call, 1)
        places = _indexed(x, indices).elements
    except NotRecordedError:
        if values.elements == 1:
            raise
        indices, places = [], values.elements
    touched = partial(x, places)
    return moved(
        reads=(values, *indices, touched if add else None),
        writes=(touched,),
        flops=arithmetic(x.dtype, places if add else 0),
        upper_bound=True,
    )


@formula("aten::scatter", "aten::scatter_", op_class="movement")
def scatter(call: OpCall) -> Cost:
    """(self, dim, index, src or value, reduce)."""
    x, index, source = tensor(call, 0), tensor(call, 2), maybe(call, 3)
    source = source and partial(source, index.elements)
    return scattered(x, source, index, index.elements, add=isinstance(argument(call, 4), str))


@formula(
    *aten("scatter_add scatter_add_ scatter_reduce scatter_reduce_"),
    op_class="movement",
)
def scatter_add(call: OpCall) -> Cost:
    """(self, dim, index, src, ...)."""
    x, index, source = tensor(call, 0), tensor(call, 2), tensor(call, 3)
    return scattered(x, partial(source, index.elements), index, index.elements, add=True)


@formula(
    *aten("index_add index_add_ index_reduce index_reduce_"),
    op_class="movement",
)
def index_add(call: OpCall) -> Cost:
    """(self, dim, index, source)."""
    x, index, source = tensor(call, 0), tensor(call, 2), tensor(call, 3)
    return scattered(x, source, index, source.elements, add=True)


@formula("aten::index_copy", "aten::index_copy_", op_class="movement")
def index_copy(call: OpCall) -> Cost:
    """(self, dim, index, source)."""
    x, index, source = tensor(call, 0), tensor(call, 2), tensor(call, 3)
    return scattered(x, source, index, source.elements, add=False)


@formula("aten::index_fill", "aten::index_fill_", op_class="movement")
def index_fill(call: OpCall) -> Cost:
    """(self, dim, index, value)."""
    x, dim, index = tensor(call, 0), integer(call, 1), tensor(call, 2)
    rows = x.elements // max(1, x.shape[dim]) * index.elements if x.shape else 1
    return scattered(x, None, index, rows, add=False)


@formula("aten::masked_select", op_class="movement")
def masked_select(call: OpCall) -> Cost:
    """(self, mask): the number kept is not recorded, so only the read is counted."""
    return moved(reads=(tensor(call, 0), tensor(call, 1)))


@formula("aten::masked_scatter", "aten::masked_scatter_", op_class="movement")
def masked_scatter(call: OpCall) -> Cost:
    """(self, mask, source): at most the whole source."""
    x, places, source = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return moved(reads=(x, places, source), writes=(like(x),), upper_bound=True)


@formula("aten::put_", op_class="movement")
def put(call: OpCall) -> Cost:
    """(self, index, source, accumulate)."""
    x, index, source = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return scattered(x, source, index, source.elements, add=flag(call, 3))


@formula(
    *aten("slice_scatter select_scatter diagonal_scatter as_strided_scatter"),
    op_class="movement",
)
def slice_scatter(call: OpCall) -> Cost:
    """(self, src, ...): a copy of self with src in its place."""
    x, source = tensor(call, 0), tensor(call, 1)
    unreplaced = partial(x, x.elements - source.elements)
    return moved(reads=(unreplaced, source), writes=(like(x),))


@formula("aten::repeat_interleave", op_class="movement")
def repeat_interleave(call: OpCall) -> Cost:
    """Repeats along an axis; unknown if repeats are a tensor, because the output size is."""
    x, repeats = tensor(call, 0), argument(call, 1)
    if not isinstance(repeats, int):
        raise NotRecordedError("the repeats are a tensor")
    return moved(reads=(x,), writes=(dense((x.elements * repeats,), x.dtype),))


@formula("aten::index_select_backward", "aten::gather_backward", op_class="movement")
def gather_backward(call: OpCall) -> Cost:
    """Zeros of the input's size, with the gradient added in."""
    grad = tensor(call, 0)
    if call.name.endswith("gather_backward"):
        return moved(reads=(grad, tensor(call, 3)), writes=(like(tensor(call, 1)),))
    sizes = integers(call, 1)
    return moved(reads=(grad, tensor(call, 3)), writes=(dense((product(sizes),), grad.dtype),))


@formula("aten::one_hot", op_class="movement")
def one_hot(call: OpCall) -> Cost:
    """[..., classes] of int64."""
    index = tensor(call, 0)
    return moved(reads=(index,), writes=(dense((*index.shape, integer(call, 1)), "int64"),))
