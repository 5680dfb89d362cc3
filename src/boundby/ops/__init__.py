"""FLOPs and compulsory bytes of operators, computed from their recorded arguments.

One file per operator family; importing this package registers all formulas.
"""

from boundby.ops import (  # noqa: F401  (imported to register their formulas)
    attention,
    collective,
    contraction,
    convolution,
    generated,
    hlo,
    indexing,
    loss,
    movement,
    multitensor,
    normalization,
    optimizer,
    pointwise,
    pooling,
    random,
    recurrent,
    reduction,
    sequences,
    serving,
    serving_products,
    softmax,
    sorting,
    spectral,
    views,
    vision,
)
from boundby.ops.registry import (
    CostFunction,
    Formula,
    NotRecordedError,
    OpClass,
    cost,
    failures,
    family,
    find,
    formula,
    names,
    op_class,
    own_cost,
)

__all__ = [
    "CostFunction",
    "Formula",
    "NotRecordedError",
    "OpClass",
    "cost",
    "failures",
    "family",
    "find",
    "formula",
    "names",
    "op_class",
    "own_cost",
]
