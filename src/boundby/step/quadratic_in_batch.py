"""Values that hold something for each sample with each other one: they grow with the square of the
batch, as the similarities do that contrastive losses compare."""

from __future__ import annotations

from boundby.model import OpCall, Tensor
from boundby.step.batch_invariant import WIDEST_CAST, batch_invariant_values, is_set
from boundby.step.dataflow import Flow
from boundby.step.model import StepView
from boundby.step.op_variants import slowest_axis

# Products of matrices, and how many tensors stand before the two.
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1}


def quadratic_values(step: StepView) -> set[int]:
    """Products of samples with samples, and what is made of these in the same size."""
    flow = step.flow
    if flow is None:
        return set()
    fixed = batch_invariant_values(step, flow)
    batches = _batches(step, flow, fixed)
    squares: set[int] = set()
    for index in flow.order:
        record = step.op_records[index]
        call = step.call(record)
        if call is None:
            continue
        grows = [value is not None and value not in fixed for value in flow.given[index]]
        if _of_all_with_all(call, grows, batches):
            squares.update(flow.makes[index])
        elif record.op_class != "contraction":
            read = max(
                (size for value, size in flow.reads[index].items() if value in squares), default=0.0
            )
            if read:
                squares.update(
                    value
                    for value in flow.makes[index]
                    if flow.values[value].bytes * WIDEST_CAST >= read
                )
    # The zeros that a gradient starts from are as many as it has numbers.
    for index in flow.order:
        if any(value in squares for value in flow.makes[index]):
            squares.update(value for value in flow.reads[index] if is_set(step, flow.values[value]))
    return squares


def _batches(step: StepView, flow: Flow, fixed: set[int]) -> set[int]:
    """How many samples operators with weights are given: a number that stands for all of them."""
    found: set[int] = set()
    for index in flow.order:
        call = step.call(step.op_records[index])
        given = flow.given[index]
        if call is None or not any(value in fixed for value in given):
            continue
        for tensor, value in zip(call.tensors, given, strict=True):
            axis = _samples_axis(tensor) if value is not None and value not in fixed else None
            if axis is not None:
                found.add(tensor.shape[axis])
    return found


def _of_all_with_all(call: OpCall, grows: list[bool], batches: set[int]) -> bool:
    """A product whose rows are samples, and whose columns are samples too."""
    first = _PRODUCTS.get(call.name)
    if first is None or not all(grows[first : first + 2]):
        return False
    rows, columns = call.tensors[first : first + 2]
    return (
        _samples_axis(rows) == 0
        and _samples_axis(columns) == 1
        and {rows.shape[0], columns.shape[1]} <= batches
    )


def _samples_axis(tensor: Tensor) -> int | None:
    return slowest_axis(tensor) if len(tensor.shape) > 1 else None
