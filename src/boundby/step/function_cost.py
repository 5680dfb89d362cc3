"""The time that generated code takes for functions that cost more than a multiplication or two.

Measured in compiled float32 kernels on an H200 (torch 2.11), by the time that each additional
function in a row adds, in FLOPs of its vector units. Two passes over a tensor in bfloat16 take
about as long as one GELU of it.
"""

from __future__ import annotations

from boundby.model import OpCall
from boundby.step.op_record import OpRecord

_FLOPS = {
    "gelu": 72.0,
    "gelu_backward": 106.0,
    "silu": 39.0,
    "silu_backward": 48.0,
    "sigmoid": 32.0,
    "tanh": 26.0,
    "exp": 19.0,
}
# As an approximation, with tanh instead of erf.
_FLOPS_BY_TANGENT = {"gelu": 47.0, "gelu_backward": 75.0}


def function_flops(work: OpRecord, call: OpCall | None) -> float:
    """The FLOPs of all numbers that an operator makes; zero for a simple operator."""
    name = work.name.partition("::")[2].removesuffix("_")
    if name not in _FLOPS or call is None or not call.tensors:
        return 0.0
    each = _FLOPS[name]
    if "tanh" in call.args:
        each = _FLOPS_BY_TANGENT.get(name, each)
    return each * max(tensor.elements for tensor in call.tensors)
