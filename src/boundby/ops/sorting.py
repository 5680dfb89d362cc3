"""Sorting, selecting and searching.

Only the first read and the last write are compulsory; other passes are time above the roofline
minimum.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import argument, dense, integer, like, moved, tensor


@formula("aten::sort", "aten::argsort", "aten::msort", op_class="movement")
def sort(call: OpCall) -> Cost:
    """Values and indices."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(like(x), like(x, dtype="int64")))


@formula("aten::topk", op_class="movement")
def topk(call: OpCall) -> Cost:
    """(self, k, dim, ...) -> k values and indices per row."""
    x, k = tensor(call, 0), integer(call, 1)
    dim = argument(call, 2) if isinstance(argument(call, 2), int) else -1
    shape = list(x.shape)
    if shape:
        shape[dim] = k
    return moved(reads=(x,), writes=(dense(shape, x.dtype), dense(shape, "int64")))


@formula("aten::kthvalue", op_class="movement")
def kthvalue(call: OpCall) -> Cost:
    """One value and its index per row."""
    x = tensor(call, 0)
    dim = argument(call, 2) if isinstance(argument(call, 2), int) else -1
    rows = x.elements // max(1, x.shape[dim]) if x.shape else 1
    return moved(reads=(x,), writes=(dense((rows,), x.dtype), dense((rows,), "int64")))


@formula(
    *aten("_unique _unique2 unique_dim unique_consecutive nonzero argwhere"),
    op_class="movement",
)
def data_dependent(call: OpCall) -> Cost:
    """The output size depends on the data: only the read is counted."""
    return moved(reads=(tensor(call, 0),))


@formula("aten::nonzero_static", op_class="movement")
def nonzero_static(call: OpCall) -> Cost:
    """(self, size)."""
    x = tensor(call, 0)
    return moved(reads=(x,), writes=(dense((integer(call, 1), len(x.shape)), "int64"),))


@formula("aten::searchsorted", "aten::bucketize", op_class="movement")
def searchsorted(call: OpCall) -> Cost:
    """(boundaries, values), or the other way round: one index per value."""
    first, second = tensor(call, 0), tensor(call, 1)
    values = first if call.name.endswith("bucketize") else second
    return moved(reads=(first, second), writes=(like(values, dtype="int64"),))


@formula("aten::histc", "aten::bincount", "aten::histogram", op_class="movement")
def histogram(call: OpCall) -> Cost:
    """Reads everything; the bins are few or unknown."""
    return moved(reads=(tensor(call, 0),))


@formula("aten::isin", op_class="movement")
def isin(call: OpCall) -> Cost:
    """(elements, test elements)."""
    x, among = tensor(call, 0), tensor(call, 1)
    return moved(reads=(x, among), writes=(like(x, dtype="bool"),))
