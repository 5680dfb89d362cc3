"""Most of an operator's result is cut away.

What it looks for
    Products, elementwise operators, casts and copies whose result is read only through slices that
    hold at most half of it, as in `head(x)[:, -1]` or `mask.bool()[:n, :n]`.

Why it costs time
    The operator computes and writes values that nothing reads. A model that generates text needs
    the logits of the last position only, and a head on all positions is often its largest product.

What to change
    Slice first: `head(x[:, -1])`, `mask[:n, :n].bool()`.

When it does not help
    When the rest is used where no operator reads it: printed, converted to numpy, or kept for a
    later step.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase, Tensor
from boundby.model.assumptions.program_savings import CUT_WORK_LEFT
from boundby.step.dataflow import Flow
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord

_MOST_READ = 0.5  # definition: beyond this, most of the result is used
_FEWEST_BYTES = 4096  # smaller results cost no time to write
_MOST_LINES = 4  # display limit
_ITEM_SIZES = (1, 2, 4, 8)


def detect(step: StepView) -> Detection | None:
    flow = step.flow
    read = dict(_mostly_cut(step, flow)) if flow is not None else {}
    if flow is None or not read:
        return None
    ranked = sorted(read, key=lambda index: -step.op_records[index].ns)
    share = read[ranked[0]]
    return Detection(
        low=Edit.set_time(_left(step, flow, read, CUT_WORK_LEFT.high)),
        expected=Edit.set_time(_left(step, flow, read, CUT_WORK_LEFT.value)),
        high=Edit.set_time(_left(step, flow, read, CUT_WORK_LEFT.low)),
        where=step.lines(step.op_records[index] for index in ranked)[:_MOST_LINES],
        change="# slice first: f(x[part]) instead of f(x)[part]",
        evidence=f"{share:.1%} of the first one's result is read",
        assumes="the rest is not printed, converted to numpy, or kept for a later step",
    )


def _mostly_cut(step: StepView, flow: Flow) -> Iterator[tuple[int, float]]:
    """Operations, and the share of their result that is read."""
    listed = _listed_sizes(step)
    for index in flow.order:
        record = step.op_records[index]
        if len(flow.makes[index]) != 1 or not _can_be_cut(record):
            continue
        made = flow.makes[index][0]
        value = flow.values[made]
        if value.bytes < _FEWEST_BYTES or any(value.bytes / one in listed for one in _ITEM_SIZES):
            continue
        if any(_changes(step, flow, reader, made) for reader in value.readers):
            continue
        read = sum(flow.reads[reader][made] for reader in value.readers)
        if 0 < read <= _MOST_READ * value.bytes:
            yield index, read / value.bytes


def _can_be_cut(record: OpRecord) -> bool:
    """Whether part of its result needs only part of its input."""
    name = record.name.rpartition("::")[2]
    if record.phase in (Phase.BACKWARD, Phase.OPTIMIZER):
        return False
    is_product = record.op_class == "contraction" and name in ("mm", "addmm", "linear", "bmm")
    return is_product or name == "copy_" or (record.op_class == "elementwise" and name[-1] != "_")


def _changes(step: StepView, flow: Flow, index: int, value: int) -> bool:
    """Whether an operation changes a value in place, so that its later readers are not known."""
    is_first = flow.arguments[index][:1] == [value]
    return is_first and step.op_records[index].name.endswith("_")


def _listed_sizes(step: StepView) -> set[float]:
    """Elements of tensors in lists, as `cat` reads them: of these no address is recorded."""
    calls = (step.call(record) for record in step.op_records)
    arguments = (one for call in calls if call is not None for one in call.args)
    lists = (one for one in arguments if isinstance(one, tuple | list))
    return {float(one.elements) for many in lists for one in many if isinstance(one, Tensor)}


def _left(step: StepView, flow: Flow, read: dict[int, float], kept: float) -> dict[int, float]:
    """The time of each operation on the part that is read; `kept`: the share of the rest that
    remains. A product still reads its weights."""
    left = {}
    for index, share in read.items():
        record = step.op_records[index]
        ns = (share + (1 - share) * kept) * record.ns
        if record.op_class == "contraction":
            weights = max(flow.reads[index].values(), default=0.0)
            roof = step.machine.memory_roof(weights)
            ns = max(ns, weights / roof.value * 1e9) if roof is not None else ns
        left[index] = min(record.ns, ns)
    return left


FAULT = Fault(
    id="cut-results",
    title="Most of a result is cut away",
    kind="mistake",
    group="bandwidth",
    document=__doc__,
    detect=detect,
)
