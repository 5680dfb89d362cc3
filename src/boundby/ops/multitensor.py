"""Operators over lists of tensors (`_foreach_*`), including gradient scaling.

Profilers omit long lists from trace files; the cost is then unknown.
"""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import family, formula
from boundby.ops.traffic import (
    arithmetic,
    dense,
    like,
    listed,
    maybe,
    moved,
    read,
    vector_unit,
    written,
)

_OPERATIONS = {"addcmul": 2, "addcdiv": 3, "lerp": 3, "norm": 2, "sigmoid": 3}
_REDUCING = ("norm", "max", "powsum")


def _base(name: str) -> str:
    return name.removeprefix("aten::_foreach_").removesuffix("_")


@family("aten::_foreach_", op_class=lambda _: "elementwise")
def foreach(call: OpCall) -> Cost:
    """(self, further lists or numbers): all are read; the first is written back, or a new one."""
    base, first = _base(call.name), listed(call, 0)
    lists = [a for a in call.args[1:] if isinstance(a, tuple | list)]
    others = [t for items in lists for t in items if isinstance(t, Tensor)]
    others += [a for a in call.args[1:] if isinstance(a, Tensor)]
    results = [dense((), t.dtype) for t in first] if base in _REDUCING else [like(t) for t in first]
    operations = _OPERATIONS.get(base, 1)
    flops: dict[str, float] = {}
    for item in first:
        unit = vector_unit(item.dtype)
        if unit:
            flops[unit] = flops.get(unit, 0) + operations * item.elements
    return _list_cost([*first, *others], results, flops, in_place=call.name.endswith("_"))


def _list_cost(
    reads: list[Tensor], writes: list[Tensor], flops: dict[str, float], *, in_place: bool = False
) -> Cost:
    """Return the cost of a list; its tensors are distinct, so it is no upper bound.

    Gradients that are views of one bucket share its storage; each is read.
    """
    return Cost(
        flops=flops,
        bytes_read=read(*reads)[0],
        bytes_written=written(*writes),
        in_place=in_place,
    )


@formula("aten::_foreach_zero_", op_class="movement")
def foreach_zero(call: OpCall) -> Cost:
    """Only writes."""
    return moved(writes=listed(call, 0))


@formula("aten::_foreach_copy_", op_class="movement")
def foreach_copy(call: OpCall) -> Cost:
    """(destinations, sources)."""
    return _list_cost(list(listed(call, 1)), list(listed(call, 0)), {})


@formula("aten::_amp_foreach_non_finite_check_and_unscale_", op_class="elementwise")
def unscale(call: OpCall) -> Cost:
    """(gradients, found_inf, inverse scale): gradients are checked and scaled in place."""
    grads = list(listed(call, 0))
    small = [item for item in (maybe(call, 1), maybe(call, 2)) if item is not None]
    elements = sum(item.elements for item in grads)
    flops = arithmetic("float32", 2 * elements)
    return _list_cost([*grads, *small], grads, flops, in_place=True)
