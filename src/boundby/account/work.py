"""What the step worked on: one `Work` per operator call that took time, with its cost and floor."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from boundby import costs
from boundby.model import Bound, Cost, Machine, OpCall, Phase, Tensor, Timeline
from boundby.model.diagnosis import ClassName

_TF32 = "matmul.tf32"
_FLOAT32 = "matmul.float32"


@dataclass(slots=True, kw_only=True)
class Work:
    """An operator call's time on the device (or on the CPU), beside what it should have taken.

    `ns` is its whole time, `exposed_ns` the part in which nothing counted before it was running.
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


class Costs:
    """The costs of a timeline's operator calls, each worked out once."""

    def __init__(self, timeline: Timeline, machine: Machine) -> None:
        self._machine = machine
        self.of_call = [costs.cost(call) for call in timeline.calls]
        self.is_costed = [cost is not None and _does_something(cost) for cost in self.of_call]

    def on(self, cost: Cost, *, tf32: bool) -> Cost:
        """The cost on the units it really runs on: float32 products may go to the tf32 units."""
        if tf32 and _FLOAT32 in cost.flops and self._machine.rate(_TF32):
            flops = dict(cost.flops)
            flops[_TF32] = flops.pop(_FLOAT32)
            return msgspec.structs.replace(cost, flops=flops)
        return cost


def _does_something(cost: Cost) -> bool:
    return bool(cost.bytes or cost.total_flops)


def bound_of(machine: Machine, cost: Cost, kernels: int) -> Bound:
    """Which roof; `small` when even the shortest kernels there are would take longer."""
    bound = machine.bound(cost)
    floor = machine.floor(cost)
    shortest = machine.overheads.shortest_kernel_ns or 0.0
    if bound != "unknown" and floor is not None and floor < kernels * shortest:
        return "small"
    return bound


def shapes_of(call: OpCall) -> str:
    """The shapes of a call's tensors, short enough to read: 4096x1024, 1024x4096, 8 more."""
    tensors = call.tensors
    shown = ["x".join(map(str, tensor.shape)) or "1" for tensor in tensors[:3]]
    if len(tensors) > len(shown):
        shown.append(f"{len(tensors) - len(shown)} more")
    return ", ".join(shown)


def dtype_of(call: OpCall) -> str | None:
    """The dtype of the largest tensor: what the operator works on."""
    largest: Tensor | None = max(call.tensors, key=lambda t: t.elements, default=None)
    return largest.dtype if largest else None
