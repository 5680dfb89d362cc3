"""Where formulas are kept: one decorated function per family of operators, one registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from boundby.model import Cost, OpCall, Record

OpClass = Literal["contraction", "normalization", "elementwise", "movement", "communication"]
CostFunction = Callable[[OpCall], Cost | None]


class NotRecordedError(LookupError):
    """What a formula needs was not recorded: the operator's cost is unknown."""


class Formula(Record, frozen=True, kw_only=True):
    """How an operator is costed, and which class of work it is."""

    op_class: OpClass
    function: CostFunction


_FORMULAS: dict[str, Formula] = {}
_FAMILIES: dict[str, tuple[CostFunction, Callable[[str], OpClass]]] = {}


def formula(*names: str, op_class: OpClass) -> Callable[[CostFunction], CostFunction]:
    """Register a cost formula for operators by name.

        @boundby.formula("mylib::scale", op_class="elementwise")
        def scale(call):
            (x,) = call.tensors
            flops = {"vector.float32": x.elements}
            return Cost(flops=flops, bytes_read=x.bytes, bytes_written=x.bytes)

    A name that is registered already fails loudly. A formula returns None when what was recorded
    does not suffice; the operator then counts as unknown, never as zero.
    """

    def register(function: CostFunction) -> CostFunction:
        for name in names:
            if name in _FORMULAS or names.count(name) > 1:
                raise ValueError(f"{name} has a cost formula already")
        for name in names:
            _FORMULAS[name] = Formula(op_class=op_class, function=function)
        return function

    return register


def aten(*names: str) -> list[str]:
    """Names of torch's own operators, given as words."""
    return [f"aten::{name}" for text in names for name in text.split()]


def family(
    *prefixes: str, op_class: Callable[[str], OpClass]
) -> Callable[[CostFunction], CostFunction]:
    """Register one formula for every operator whose name starts so; its class is read from it.

    Generated kernels have names nobody can list: `triton_poi_fused_add_gelu_3`.
    """

    def register(function: CostFunction) -> CostFunction:
        for prefix in prefixes:
            if prefix in _FAMILIES:
                raise ValueError(f"{prefix}* has a cost formula already")
            _FAMILIES[prefix] = (function, op_class)
        return function

    return register


def find(name: str) -> Formula | None:
    """The formula for an operator, or None. A name of its own wins over a family's prefix."""
    own = _FORMULAS.get(name)
    if own is not None:
        return own
    matching = [prefix for prefix in _FAMILIES if name.startswith(prefix)]
    if not matching:
        return None
    function, classify = _FAMILIES[max(matching, key=len)]
    return Formula(op_class=classify(name), function=function)


def names() -> list[str]:
    """Every name that has a formula of its own, sorted."""
    return sorted(_FORMULAS)


def op_class(name: str) -> OpClass | None:
    """Which class of work an operator is, or None where there is no formula."""
    found = find(name)
    return found.op_class if found else None


def cost(call: OpCall) -> Cost | None:
    """What a call must cost at least; None when nothing costs it or too little was recorded.

    A recording that does not fit the operator's signature (an older schema, a broken trace) makes
    that one call unknown, where its share of the time shows, and never ends the diagnosis.
    """
    found = find(call.name)
    if found is None:
        return None
    try:
        return found.function(call)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


# An operator whose inner operators account for this much of its FLOPs and of its bytes has handed
# its work on to them. What remains otherwise (a bias copied before a product, a result set to zero
# before a sum) stays far below, a repeated or decomposed operator far above.
HANDED_ON = 0.5


def own(cost: Cost, inside: Cost) -> Cost:
    """What an operator does itself, given the cost of all operators inside it together.

    `aten::convolution` around `aten::mkldnn_convolution` does nothing itself; `aten::addmm` that
    first copies its bias does all of the product. Where only time is recorded, as on a CPU, this
    keeps work from being counted at every level it passes through.
    """
    bytes_handed_on = inside.bytes >= HANDED_ON * cost.bytes
    flops_handed_on = inside.total_flops >= HANDED_ON * cost.total_flops
    return Cost() if bytes_handed_on and flops_handed_on else cost
