"""Random numbers and dropout. Generating a number counts as one operation."""

from __future__ import annotations

from boundby.model import Cost, OpCall, Tensor
from boundby.ops.registry import aten, formula
from boundby.ops.traffic import (
    argument,
    arithmetic,
    dense,
    flag,
    integers,
    like,
    maybe,
    moved,
    tensor,
)


@formula("aten::native_dropout", op_class="elementwise")
def native_dropout(call: OpCall) -> Cost:
    """(input, p, train) -> output and, for the backward, a mask of one byte per element."""
    x = tensor(call, 0)
    mask = like(x, dtype="bool") if flag(call, 2, default=True) else None
    return moved(reads=(x,), writes=(like(x), mask), flops=arithmetic(x.dtype, 2 * x.elements))


@formula("aten::_fused_dropout", op_class="elementwise")
def fused_dropout(call: OpCall) -> Cost:
    """Output and a uint8 mask."""
    x = tensor(call, 0)
    mask = like(x, dtype="uint8")
    return moved(reads=(x,), writes=(like(x), mask), flops=arithmetic(x.dtype, 2 * x.elements))


@formula(
    *aten("normal_ uniform_ random_ exponential_ cauchy_ geometric_ log_normal_"),
    op_class="elementwise",
)
def drawn(call: OpCall) -> Cost:
    """Only writes its destination."""
    x = tensor(call, 0)
    return moved(writes=(x,), flops=arithmetic(x.dtype, x.elements))


@formula("aten::bernoulli_", op_class="elementwise")
def bernoulli_(call: OpCall) -> Cost:
    """(self, p), where p may be a tensor of probabilities."""
    x = tensor(call, 0)
    return moved(reads=(maybe(call, 1),), writes=(x,), flops=arithmetic(x.dtype, x.elements))


@formula(
    *aten("bernoulli poisson _standard_gamma binomial _sample_dirichlet"),
    op_class="elementwise",
)
def drawn_from(call: OpCall) -> Cost:
    """One draw per parameter."""
    x = tensor(call, 0)
    second = maybe(call, 1) if call.name == "aten::binomial" else None
    return moved(reads=(x, second), writes=(like(x),), flops=arithmetic(x.dtype, x.elements))


@formula("aten::normal", op_class="elementwise")
def normal(call: OpCall) -> Cost:
    """(mean, std), at least one of them a tensor."""
    parameters = [item for item in call.args[:2] if isinstance(item, Tensor)]
    largest = max(parameters, key=lambda item: item.elements)
    return moved(
        reads=parameters, writes=(like(largest),), flops=arithmetic(largest.dtype, largest.elements)
    )


@formula(
    *aten("rand randn randint rand_like randn_like randint_like"),
    op_class="elementwise",
)
def new(call: OpCall) -> Cost:
    """Allocates and draws; the drawing is a separate operator if that was recorded."""
    first = argument(call, 0)
    if isinstance(first, Tensor):
        return moved(writes=(like(first),))
    positions = [i for i, a in enumerate(call.args) if isinstance(a, tuple | list)]
    whole = call.name == "aten::randint"
    sizes = integers(call, positions[0])
    return moved(writes=(dense(sizes, "int64" if whole else "float32"),))


@formula("aten::multinomial", op_class="elementwise")
def multinomial(call: OpCall) -> Cost:
    """(probabilities, samples, replacement)."""
    x, samples = tensor(call, 0), integers(call, 1)[0]
    return moved(
        reads=(x,),
        writes=(dense((*x.shape[:-1], samples), "int64"),),
        flops=arithmetic(x.dtype, x.elements),
    )
