"""How a step's operations grow with the batch: activations grow, weights and their gradients do
not.

The machine's curves say how much closer to the roofline larger kernels run.
"""

from __future__ import annotations

from typing import NamedTuple

from boundby.model import Phase
from boundby.model.assumptions.savings import BATCH_GROWTH
from boundby.step.batch_invariant import (
    BATCHED_PRODUCTS,
    batch_invariant_values,
    goes_to_optimizer,
)
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord
from boundby.step.sample_loops import find_sample_loops, holds_samples


class Growth(NamedTuple):
    """How operations, and the script's own Python, grow with the batch."""

    between: float  # interpolates: 0 is by the machine's curves, 1 in proportion to the batch
    script: float | None  # the share of the script's own Python that grows; None: the likely share


SLOW = Growth(BATCH_GROWTH.high, 1.0)
LIKELY = Growth(BATCH_GROWTH.value, None)
FAST = Growth(BATCH_GROWTH.low, 0.0)
AS_THE_CURVES = Growth(0.0, 0.0)  # definition


def times_with(step: StepView, factor: int, growth: Growth) -> dict[int, float]:
    """The time of each operation with a `factor` times larger batch."""
    ratios = _ratios_with(step, factor)
    shortest = step.machine.overheads.shortest_kernel_ns or 0.0
    times = {}
    looped = {index for loop in find_sample_loops(step) for index in loop.op_records}
    for index, record in enumerate(step.op_records):
        one_sample = index in looped and not holds_samples(step, index)
        if one_sample or step.is_for_data(record):
            times[index] = factor * record.ns  # it is called once per sample
            continue
        calls = factor if index in looped else 1
        curve, most = ratios[index]
        ratio = max(1.0, curve + (most - curve) * growth.between)
        start = min(shortest * record.kernels, record.ns)
        times[index] = calls * (start + (record.ns - start) * ratio)
    return times


def _ratios_with(step: StepView, factor: int) -> list[tuple[float, float]]:
    """For each operation, how much longer it takes with a `factor` times larger batch."""
    by_factor = step.memoised(_known_ratios)
    if factor not in by_factor:
        constant = _constant_bytes(step)
        by_factor[factor] = [
            _ratios(step, record, factor, constant[index])
            for index, record in enumerate(step.op_records)
        ]
    return by_factor[factor]


def _known_ratios(_: StepView) -> dict[int, list[tuple[float, float]]]:
    return {}


def _ratios(step: StepView, record: OpRecord, factor: int, constant: float) -> tuple[float, float]:
    """How much longer an operation takes: by the machine's curves, and at most.

    Larger kernels run closer to the roofline: the curves say by how much.
    """
    if record.phase == Phase.OPTIMIZER or record.ns <= 0:
        return 1.0, 1.0
    cost, machine = record.cost, step.machine
    times = float(factor)
    if cost is None or not record.floor_ns:
        return times, times
    if constant >= cost.bytes:
        return 1.0, 1.0
    if step.device == "cpu" and record.name.partition("::")[2] in BATCHED_PRODUCTS:
        return times, times  # more products, none of them larger
    grown = cost.bytes * factor - constant * (factor - 1)
    if record.bound == "compute":
        unit = max(cost.flops, key=lambda name: cost.flops[name])
        flops = cost.flops[unit]
        before, after = (machine.product_ns(unit, amount) for amount in (flops, flops * times))
    else:
        before, after = machine.copy_ns(cost.bytes), machine.copy_ns(grown)
    ratio = after / before if before and after else times
    most = times if record.bound == "compute" else grown / cost.bytes
    return min(most, max(1.0, ratio)), most


def _constant_bytes(step: StepView) -> list[float]:
    """For each operation, the bytes that do not grow: weights it reads, gradients it makes."""
    flow = step.flow
    if flow is None:
        return [_weights_by_place(step, record) for record in step.op_records]
    fixed = batch_invariant_values(step, flow)
    constant = [0.0] * len(step.op_records)
    for index in flow.order:
        read = sum(size for value, size in flow.reads[index].items() if value in fixed)
        made = [
            flow.values[value].bytes
            for value in flow.makes[index]
            if value in fixed or goes_to_optimizer(step, flow.values[value])
        ]
        constant[index] = read + sum(made)
    return constant


def _weights_by_place(step: StepView, record: OpRecord) -> float:
    """Weights if memory was not recorded: the smaller operand of each product."""
    call = step.call(record)
    if call is None or record.op_class != "contraction" or len(call.tensors) < 2:
        return 0.0
    return float(min(tensor.bytes for tensor in call.tensors[:2]))
