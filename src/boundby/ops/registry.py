"""The registry of cost formulas: one decorated function per operator or family of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from boundby.model import Cost, OpCall, Record
from boundby.model.assumptions.detection import DELEGATED_SHARE
from boundby.model.failures import Failures

OpClass = Literal["contraction", "normalization", "elementwise", "movement", "communication"]
CostFunction = Callable[[OpCall], Cost | None]


class NotRecordedError(LookupError):
    """An argument that a formula needs was not recorded: the operator's cost is unknown."""


class Formula(Record, frozen=True, kw_only=True):
    """The cost function and the class of an operator. `built_in`: from this package, whose formulas
    handle old schemas and damaged traces."""

    op_class: OpClass
    function: CostFunction
    built_in: bool = True


_FORMULAS: dict[str, Formula] = {}
_FAMILIES: dict[str, tuple[CostFunction, Callable[[str], OpClass]]] = {}
_PACKAGE = __name__.partition(".")[0]
# Of users' formulas, by operator.
failures = Failures("formulas")


def formula(*names: str, op_class: OpClass) -> Callable[[CostFunction], CostFunction]:
    """Register a cost formula for operators by name.

        @boundby.formula("mylib::scale", op_class="elementwise")
        def scale(call):
            (x,) = call.tensors
            flops = {"vector.float32": x.elements}
            return Cost(flops=flops, bytes_read=x.bytes, bytes_written=x.bytes)

    A name that is already registered raises. A formula returns None if the recorded arguments do
    not suffice; the operator then counts as unknown, never as zero.
    """

    def register(function: CostFunction) -> CostFunction:
        for name in names:
            if name in _FORMULAS or names.count(name) > 1:
                raise ValueError(f"{name} has a cost formula already")
        for name in names:
            _FORMULAS[name] = Formula(
                op_class=op_class, function=function, built_in=_is_built_in(function)
            )
        return function

    return register


def aten(*names: str) -> list[str]:
    """Return the names of torch's own operators, given as words."""
    return [f"aten::{name}" for text in names for name in text.split()]


def family(
    *prefixes: str, op_class: Callable[[str], OpClass]
) -> Callable[[CostFunction], CostFunction]:
    """Register one formula for every operator with one of these prefixes; `op_class` depends on the
    name.

    The names of generated kernels cannot be listed: `triton_poi_fused_add_gelu_3`.
    """

    def register(function: CostFunction) -> CostFunction:
        for prefix in prefixes:
            if prefix in _FAMILIES:
                raise ValueError(f"{prefix}* has a cost formula already")
            _FAMILIES[prefix] = (function, op_class)
        return function

    return register


def find(name: str) -> Formula | None:
    """Return the formula of an operator, or None. An exact name wins over a family's prefix."""
    exact = _FORMULAS.get(name)
    if exact is not None:
        return exact
    matching = [prefix for prefix in _FAMILIES if name.startswith(prefix)]
    if not matching:
        return None
    function, classify = _FAMILIES[max(matching, key=len)]
    return Formula(op_class=classify(name), function=function, built_in=_is_built_in(function))


def _is_built_in(function: CostFunction) -> bool:
    return function.__module__.partition(".")[0] == _PACKAGE


def names() -> list[str]:
    """Return every name with a formula of its own, sorted."""
    return sorted(_FORMULAS)


def op_class(name: str) -> OpClass | None:
    """Return the class of an operator, or None without a formula."""
    known_formula = find(name)
    return known_formula.op_class if known_formula else None


def cost(call: OpCall) -> Cost | None:
    """The minimum cost of a call; None if it has no formula or too little was recorded.

    A recording that does not fit the operator's signature (an older schema, a damaged trace) makes
    that one call unknown, which its share of the time shows, and never ends the diagnosis. An
    exception of a user's formula is recorded while `failures` are collected, and raised otherwise.
    """
    known_formula = find(call.name)
    if known_formula is None:
        return None
    try:
        if any(tensor.sparse for tensor in call.tensors):
            return _sparse_product(call) if known_formula.op_class == "contraction" else None
        return known_formula.function(call)
    except NotRecordedError:
        return None
    except Exception as error:
        if not call.args:  # nothing was recorded
            return None
        if not known_formula.built_in and failures.note(call.name):
            return None
        if known_formula.built_in and isinstance(
            error, (LookupError, TypeError, ValueError, ArithmeticError)
        ):
            return None
        raise


def _sparse_product(call: OpCall) -> Cost | None:
    """A sparse matrix times a dense one: the dense one is read at most once, the result written.

    The number of values in the sparse one is not recorded; the FLOPs of a dense product would be
    far beyond every roof. At least one value per row is assumed.
    """
    sparse = [tensor for tensor in call.tensors if tensor.sparse]
    dense = [tensor for tensor in call.tensors if not tensor.sparse and len(tensor.shape) == 2]
    if len(sparse) != 1 or not dense:
        return None
    factor = dense[-1]
    size = factor.bytes / max(1, factor.distinct_elements)
    results = sparse[0].shape[0] * factor.shape[-1]
    unit = "vector.float64" if factor.dtype in ("float64", "complex128") else "vector.float32"
    return Cost(
        flops={unit: 2.0 * results},
        bytes_read=factor.bytes,
        bytes_written=results * size,
        upper_bound=True,
    )


def own_cost(cost: Cost, inside: Cost) -> Cost:
    """Return an operator's own cost, given the total cost of the operators it calls.

    `aten::convolution` around `aten::mkldnn_convolution` does nothing itself; `aten::addmm` that
    first copies its bias does the whole product. On a CPU, where only operators are timed, this
    prevents the same work from being counted once per nesting level.
    """
    bytes_delegated = inside.bytes >= DELEGATED_SHARE.value * cost.bytes
    flops_delegated = inside.total_flops >= DELEGATED_SHARE.value * cost.total_flops
    return Cost() if bytes_delegated and flops_delegated else cost
