"""What generated code takes for reductions of many numbers to one, beside the pass that uses them.

Few columns of many rows give a device too little to do at once: several blocks share each column,
and a launch of its own for each result adds up what they found. So it is in the kernels of compiled
steps on an H200 (torch 2.11): of a bias's gradient and the pass that makes what it sums, one kernel
in BERT with 128 rows, three in BERT-large with 4096.
"""

from __future__ import annotations

import math

from boundby.model import OpCall, Tensor
from boundby.ops.reduction import summed_axes
from boundby.ops.traffic import argument

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
# Torch's compiler lets blocks share what is reduced from so many numbers on, where it reduces to
# fewer than so many: along the last axes, and across rows. Of an H200's 132 multiprocessors, 2 and
# 64 for each; of other devices with the same architecture about as many.
_ALONG_FROM, _ALONG_TO = 8192, 264
_ACROSS_FROM, _ACROSS_TO = 128, 8448
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
    shared = call is None or _is_shared(name, call)
    return _SHARED_LAUNCHES[name] if shared else _WHOLE_LAUNCHES[name]


def takes_two_passes(operator: str, call: OpCall | None) -> bool:
    """Whether what an operator reads is read once more, by what uses the result or for it."""
    if any(part in operator for part in _SECOND_PASS):
        return True
    return call is not None and operator.endswith("::sum") and _is_shared("aten::sum", call)


def _is_shared(name: str, call: OpCall) -> bool:
    """Whether several blocks reduce to one number; so it is where the shapes do not say."""
    if name not in _WHOLE_LAUNCHES or not call.tensors:
        return True
    x = call.tensors[0]
    if name == "aten::sum":
        over = summed_axes(call)
    else:
        normalized = argument(call, 2)
        if not isinstance(normalized, tuple | list):
            return True
        over = set(range(len(x.shape) - len(normalized)))
    results = math.prod(extent for axis, extent in enumerate(x.shape) if axis not in over)
    least, most = (_ALONG_FROM, _ALONG_TO) if _is_along(x, over) else (_ACROSS_FROM, _ACROSS_TO)
    return x.elements > least * results and results < most


def _is_along(x: Tensor, over: set[int]) -> bool:
    """Whether these are the last axes: what is reduced lies together."""
    return over == set(range(len(x.shape) - len(over), len(x.shape)))
