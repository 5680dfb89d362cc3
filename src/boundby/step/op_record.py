"""One `OpRecord` per executed operator that took time: its cost and its roofline minimum."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from boundby import ops as costs
from boundby.model import (
    Bound,
    Cost,
    HloInstruction,
    Machine,
    OpCall,
    Phase,
    Precision,
    Tensor,
    Timeline,
)
from boundby.model.kernel_names import KernelClass
from boundby.model.rows import ClassName

_FLOAT32 = "matmul.float32"
_CONVOLUTION = re.compile(r"conv")
_RECURRENT = re.compile(r"rnn|lstm|gru")


@dataclass(slots=True, kw_only=True)
class OpRecord:
    """An operator call's time on the device (or on the CPU), with its cost and roofline minimum.

    `ns` is its whole time, `exposed_ns` the part in which nothing of higher priority was running.
    `kernel_class` follows from the name of its first kernel.
    """

    name: str
    op_class: ClassName
    bound: Bound
    ns: float
    exposed_ns: float
    kernels: int = 1
    cost: Cost | None = None
    floor_ns: float | None = None
    row: int = -1
    source: int = -1
    inside: int = -1
    module: int = -1
    phase: int = Phase.OTHER
    call: int = -1
    kernel_class: KernelClass | None = None


class Costs:
    """The costs of a timeline's operator calls, each computed once."""

    def __init__(self, timeline: Timeline, machine: Machine) -> None:
        self._machine = machine
        self.of_call = [costs.cost(call) for call in timeline.calls]
        self.is_costed = [cost is not None and _does_something(cost) for cost in self.of_call]

    def on(self, cost: Cost, dtype: str | None) -> Cost:
        """The cost on the units it runs on, if float32 products may be computed in this dtype.

        A library that may use it does so if that is faster: a CPU without bfloat16 units stays in
        float32 in any case.
        """
        if dtype is None:
            return cost
        unit = f"matmul.{dtype}"
        slow, fast = self._machine.rate(_FLOAT32), self._machine.rate(unit)
        if _FLOAT32 not in cost.flops or not fast or (slow and fast <= slow):
            return cost
        flops = dict(cost.flops)
        flops[unit] = flops.get(unit, 0.0) + flops.pop(_FLOAT32)
        return msgspec.structs.replace(cost, flops=flops)


def is_convolution(operator: str) -> bool:
    return _CONVOLUTION.search(operator) is not None


def is_recurrent(operator: str) -> bool:
    """Whether it is a recurrent layer in one operator, not one made of products."""
    return _RECURRENT.search(operator) is not None


def allowed_dtype(precision: Precision, operator: str, *, on_cuda: bool) -> str | None:
    """The dtype in which float32 products of an operator may be computed; None if unknown."""
    # torch's default, if the setting is unknown: tf32 for cuDNN, not for cuBLAS.
    usual = "tf32" if on_cuda else None
    if is_convolution(operator):
        return precision.convolutions or usual
    if is_recurrent(operator):
        return precision.recurrent or usual
    return precision.products


# The dtype in which XLA computes float32 products, unless highest precision is requested.
_XLA_DEFAULT = {"cuda": "tf32", "tpu": "bfloat16"}


def xla_dtype(instruction: HloInstruction, device_kind: str) -> str | None:
    """The dtype in which float32 products of an instruction are computed; None for float32
    itself."""
    return None if _is_exact(instruction) else _XLA_DEFAULT.get(device_kind)


def _is_exact(instruction: HloInstruction) -> bool:
    inside = (inner for called in instruction.called for inner in called.instructions)
    return instruction.exact or any(map(_is_exact, inside))


def _does_something(cost: Cost) -> bool:
    return bool(cost.bytes or cost.total_flops)


def bound_of(machine: Machine, cost: Cost, kernels: int) -> Bound:
    """The roof that bounds an operation; `small` if even the shortest kernels would take longer.

    One with nothing to compute or move, such as the executor's part of a loop, is overhead alone.
    """
    if not _does_something(cost):
        return "small"
    bound = machine.bound(cost)
    floor = machine.floor(cost)
    shortest = machine.overheads.shortest_kernel_ns or 0.0
    if bound != "unknown" and floor is not None and floor < kernels * shortest:
        return "small"
    return bound


def shapes_of(call: OpCall) -> str:
    """The shapes of a call's tensors, abbreviated: 4096x1024, 1024x4096, 8 more."""
    tensors = call.tensors
    shown = ["x".join(map(str, tensor.shape)) or "1" for tensor in tensors[:3]]
    if len(tensors) > len(shown):
        shown.append(f"{len(tensors) - len(shown)} more")
    return ", ".join(shown)


def dtype_of(call: OpCall) -> str | None:
    """The dtype of the largest tensor."""
    largest: Tensor | None = max(call.tensors, key=lambda t: t.elements, default=None)
    return largest.dtype if largest else None
