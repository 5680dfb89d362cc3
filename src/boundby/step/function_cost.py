"""The arithmetic of generated code for functions that cost more than a multiplication or two.

Two passes over a tensor in bfloat16 take about as long as one GELU of it.
"""

from __future__ import annotations

from boundby.model import OpCall
from boundby.model.assumptions import generated_code
from boundby.step.op_record import OpRecord

_FLOPS = {
    "gelu": generated_code.GELU_FLOPS.value,
    "gelu_backward": generated_code.GELU_BACKWARD_FLOPS.value,
    "silu": generated_code.SILU_FLOPS.value,
    "silu_backward": generated_code.SILU_BACKWARD_FLOPS.value,
    "sigmoid": generated_code.SIGMOID_FLOPS.value,
    "tanh": generated_code.TANH_FLOPS.value,
    "exp": generated_code.EXP_FLOPS.value,
}
# As an approximation, with tanh instead of erf.
_FLOPS_WITH_TANH = {
    "gelu": generated_code.TANH_GELU_FLOPS.value,
    "gelu_backward": generated_code.TANH_GELU_BACKWARD_FLOPS.value,
}


def function_flops(record: OpRecord, call: OpCall | None) -> float:
    """The FLOPs of all numbers that an operator makes; zero for a simple operator."""
    name = record.name.partition("::")[2].removesuffix("_")
    if name not in _FLOPS or call is None or not call.tensors:
        return 0.0
    each = _FLOPS[name]
    if "tanh" in call.args:
        each = _FLOPS_WITH_TANH.get(name, each)
    return each * max(tensor.elements for tensor in call.tensors)
