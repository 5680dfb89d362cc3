"""Softmax and logarithm are computed apart.

What it looks for
    A logarithm of the result of a softmax, or of a sigmoid, found by the memory that one writes and
    the other reads; also of the result with a small number added, clamped, or taken from one.

Why it costs time
    The probabilities are written and read once more, forward and backward: two passes over the
    largest tensor of many models. The logarithm of a probability that became zero is infinite.

What to change
    `F.cross_entropy(logits, target)`, `F.log_softmax(logits, -1)`, or
    `F.binary_cross_entropy_with_logits`.

When it does not help
    When the probabilities are needed as well.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase
from boundby.step.dataflow import Flow
from boundby.step.model import Edit, StepView

_PROBABILITIES = ("aten::softmax", "aten::_softmax", "aten::sigmoid")
_LOGS = ("aten::log", "aten::log_")
# What keeps the logarithm finite, or takes it of the opposite.
_GUARDS = ("aten::add", "aten::clamp", "aten::clamp_min", "aten::clip", "aten::rsub", "aten::copy")
_MOST_BETWEEN = 4  # time limit: operators between the two
_BACKWARD_OF_LOG = ("aten::div", "aten::reciprocal")


def detect(step: StepView) -> Detection | None:
    flow = step.flow
    if flow is None:
        return None
    logs: list[int] = []
    makers: list[int] = []
    for index in flow.order:
        found = _between(step, flow, index) if step.op_records[index].name in _LOGS else None
        if found is not None:
            logs += [index, *found[:-1]]
            makers.append(found[-1])
    if not logs:
        return None
    lines = {step.op_records[index].source for index in logs}
    backward = [
        index
        for index, op in enumerate(step.op_records)
        if op.phase == Phase.BACKWARD and op.source in lines and op.name in _BACKWARD_OF_LOG
    ]
    gone = [*logs, *backward]
    where = step.lines(step.op_records[index] for index in logs)
    where += step.lines(step.op_records[index] for index in makers)
    return Detection(
        low=Edit.remove(logs),
        expected=Edit.remove(gone),
        high=Edit.remove(gone),
        where=list(dict.fromkeys(where)),
        change="loss = F.cross_entropy(logits, target)  # or F.log_softmax(logits, -1)",
        assumes="the probabilities themselves are not needed",
    )


def _between(step: StepView, flow: Flow, log: int) -> list[int] | None:
    """The operators from a logarithm back to the probabilities that it reads, these last; None if
    it reads none."""
    found: list[int] = []
    waiting = sorted(flow.makers[log])
    while waiting and len(found) < _MOST_BETWEEN:
        index = waiting.pop()
        name = step.op_records[index].name
        if name in _PROBABILITIES:
            return [*found, index]
        if name.removesuffix("_") in _GUARDS and index not in found:
            found.append(index)
            waiting += sorted(flow.makers[index])
    return None


FAULT = Fault(
    id="softmax-log-apart",
    title="Softmax and log computed separately",
    kind="mistake",
    group="bandwidth",
    document=__doc__,
    detect=detect,
)
