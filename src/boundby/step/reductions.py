"""Reductions over rows in compiled code.

Few columns with many rows give a device too little parallel work: several blocks share each column,
and another launch adds their results. An operation that uses the result reads its input again.
"""

from __future__ import annotations

from boundby.model import OpCall
from boundby.ops.reduction import summed_axes

_NORMALIZATIONS = ("batch_norm", "native_group_norm", "native_layer_norm_backward")


def reduces_over_rows(operator: str, call: OpCall | None) -> bool:
    """Whether an operator reduces more than the last dimensions, as statistics and bias gradients
    do."""
    if not operator.endswith("::sum"):
        return any(part in operator for part in _NORMALIZATIONS)
    if call is None or not call.tensors:
        return True
    axes, over = len(call.tensors[0].shape), summed_axes(call)
    return len(over) == axes or axes - 1 not in over
