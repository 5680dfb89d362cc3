"""What generated code takes for reductions of many numbers to one, beside the pass that uses them.

Few columns of many rows give a device too little to do at once: several blocks share each column,
and a launch of its own for each result adds up what they found. So it is in the kernels of compiled
steps on an H200 (torch 2.11): of a bias's gradient and the pass that makes what it sums, one kernel
in BERT with 128 rows, three in BERT-large with 4096.
"""

from __future__ import annotations

import math

from boundby.costs.reduction import reduced
from boundby.costs.traffic import argument
from boundby.model import OpCall

# Launches beside the pass that uses the result where blocks share columns; the longest name counts.
_SHARED_LAUNCHES = {
    "native_batch_norm": 2,
    "cudnn_batch_norm": 2,
    "native_batch_norm_backward": 3,
    "cudnn_batch_norm_backward": 3,
    "native_group_norm": 2,
    "native_group_norm_backward": 4,
    "native_layer_norm_backward": 3,
    "aten::sum": 2,
}
# Where none are shared: sums are part of the pass, but for those over the other axis of one.
_WHOLE_LAUNCHES = {"native_layer_norm_backward": 1, "aten::sum": 0}
# No column is shared of so few rows, or of so many columns: 64 for each of 132 multiprocessors.
_FEW_ROWS, _MANY_COLUMNS = 128, 8448
# What needs the result of such a one, column by column, cannot share a pass with it.
_SECOND_PASS = (
    "native_batch_norm",
    "cudnn_batch_norm",
    "native_layer_norm_backward",
    "native_group_norm",
)


def reduction_launches(operator: str, call: OpCall | None) -> int:
    """Launches for what an operator reduces, beside the one that uses it."""
    names = [name for name in _SHARED_LAUNCHES if name in operator]
    if not names:
        return 0
    name = max(names, key=len)
    shared = call is None or _shares_columns(name, call)
    return _SHARED_LAUNCHES[name] if shared else _WHOLE_LAUNCHES[name]


def takes_two_passes(operator: str, call: OpCall | None) -> bool:
    """Whether what an operator reads is read once more, by what uses the result or for it."""
    if any(part in operator for part in _SECOND_PASS):
        return True
    return call is not None and operator.endswith("::sum") and _shares_columns("aten::sum", call)


def _shares_columns(name: str, call: OpCall) -> bool:
    """Whether several blocks take part in one column; so it is where the shapes do not say."""
    if name not in _WHOLE_LAUNCHES or not call.tensors:
        return True
    x = call.tensors[0]
    if name == "aten::sum":
        over = argument(call, 1)
        if over in ((-1,), (len(x.shape) - 1,)):
            return False  # one block has read the row anyway
        columns = math.prod(reduced(x, over))
    else:
        columns = math.prod(argument(call, 2) or ())
    return x.elements > _FEW_ROWS * columns and columns < _MANY_COLUMNS
