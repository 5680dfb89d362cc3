"""Many tensors that are kept in a list are joined in every step.

What it looks for
    `torch.cat` and `torch.stack` of dozens of tensors that were made before the step, each with
    memory of its own: a replay buffer's transitions, a queue of embeddings, samples kept one by
    one.

Why it costs time
    Each tensor is a Python object that is looked up, checked and copied by itself, from a place of
    its own in memory, for a few numbers.

What to change
    Keep all of them in one tensor that is made once, write new ones into it in place, and take
    rows out with one index: `states[at % size] = state`, `batch = states[torch.randint(size,
    (n,))]`. The same holds for lists of arrays.

When it does not help
    When the tensors differ in size, or each is so large that copying it takes the time.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase
from boundby.model.assumptions.program_savings import REPEATED_WORK_LEFT
from boundby.step.dataflow import OUTSIDE, Flow
from boundby.step.model import Edit, StepView
from boundby.step.rows import without_rows

_JOINS = ("aten::cat", "aten::stack", "aten::_stack")
_FEWEST = 32  # tensors; fewer are not reported
_MOST_LINES = 4  # display limit


def detect(step: StepView) -> Detection | None:
    flow = step.flow
    found = [i for i in flow.order if _joins_kept(step, flow, i)] if flow is not None else []
    if not found:
        return None
    rows = np.zeros(len(step.timeline.host), np.bool_)
    rows[[step.op_records[index].row for index in found]] = True
    rows = step.inside(rows | _around(step, rows))
    taken = Edit.set_time({index: _at_once_ns(step, index) for index in found})
    most = max(_count(step, index) for index in found)
    return Detection(
        low=without_rows(step, rows, REPEATED_WORK_LEFT.high) + taken,
        expected=without_rows(step, rows) + taken,
        high=without_rows(step, rows),
        where=step.lines(step.op_records[index] for index in found)[:_MOST_LINES],
        change="batch = kept[rows]  # one tensor instead of a list; new ones: kept[at] = row",
        assumes="the tensors are of one size, so that one tensor can hold them",
        evidence=f"up to {most:,} tensors from before the step are joined at once",
    )


def _count(step: StepView, index: int) -> int:
    call = step.call(step.op_records[index])
    return len(call.tensors) if call is not None else 0


def _joins_kept(step: StepView, flow: Flow, index: int) -> bool:
    """Whether most of what an operator joins was made before the step, apart from each other."""
    record = step.op_records[index]
    call = step.call(record)
    if call is None or record.name not in _JOINS or record.phase == Phase.BACKWARD:
        return False
    # A loader makes its samples; so does a loop in the step.
    if len(call.tensors) < _FEWEST or step.is_for_data(record):
        return False
    kept = {
        tensor.storage
        for tensor, value in zip(call.tensors, flow.arguments[index], strict=True)
        if value is not None and flow.values[value].maker == OUTSIDE
    }
    return len(kept) >= len(call.tensors) // 2


def _around(step: StepView, rows: np.ndarray) -> np.ndarray:
    """The operators that called these: `stack` calls `cat`."""
    host, names = step.timeline.host, step.timeline.names
    joins = np.array([name in _JOINS for name in names] or [False])[host.name]
    found = np.zeros(len(host), np.bool_)
    for row in np.flatnonzero(rows).tolist():
        parent = int(host.parent[row])
        if parent >= 0 and joins[parent]:
            found[parent] = True
    return found


def _at_once_ns(step: StepView, index: int) -> float:
    """The time to take as many numbers out of one tensor."""
    record = step.op_records[index]
    size = record.cost.bytes if record.cost is not None else 0.0
    return min(record.ns, step.machine.copy_ns(size) or 0.0)


FAULT = Fault(
    id="joined-lists",
    title="Tensors kept in a list are joined in every step",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
)
