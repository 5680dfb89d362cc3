"""A product with one-hot rows is used where a lookup would do.

What it looks for
    Lines that make one-hot rows with `F.one_hot` or by scattering ones, and products or sums at
    the same line or of the same memory that read them.

Why it costs time
    The rows are made of zeros that are written, converted, and multiplied. A lookup reads one row
    of the table for each index.

What to change
    `F.embedding(index, weight.t())` or `nn.Embedding` instead of `one_hot(index) @ weight.t()`;
    `F.cross_entropy(logits, index)` or `gather` instead of a product with a one-hot target.

When it does not help
    When the rows are mixed, as with label smoothing or mixup.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import LOOKUP_LEFT
from boundby.step.dataflow import Flow
from boundby.step.model import Edit, StepView

_ONE_HOT = "aten::one_hot"
_PRODUCTS = ("mm", "addmm", "bmm", "linear", "mul", "matmul", "dot", "mv", "sum")
_HANDS_ON = ("copy_", "to", "_to_copy", "clone", "contiguous", "add", "neg", "sub")


def detect(step: StepView) -> Detection | None:
    host, names = step.timeline.host, step.timeline.names
    makes = [at for at, name in enumerate(names) if name == _ONE_HOT]
    if not makes:
        return None
    inside = step.within(_ONE_HOT)
    made = [i for i, op in enumerate(step.op_records) if op.row >= 0 and inside[op.row]]
    flow = step.flow
    if not made or flow is None:
        return None
    following = _readers(step, flow, made)
    products = [i for i in following if _is_product(step, i)]
    if not products:
        return None
    # The backward of operators that read the rows: a table's gradient by a product with them.
    sequences = {int(host.sequence[step.op_records[i].row]) for i in (*made, *following)}
    gone = list(dict.fromkeys([*made, *following]))
    where = step.lines(step.op_records[i] for i in (*made, *following))
    lookups = LOOKUP_LEFT.value if sequences else 0.0
    return Detection(
        low=Edit.set_time({i: step.op_records[i].ns * LOOKUP_LEFT.high for i in gone}),
        expected=Edit.set_time({i: step.op_records[i].ns * lookups for i in gone}),
        high=Edit.remove(gone),
        where=where,
        change="x = F.embedding(index, weight.t())  # or F.cross_entropy(logits, index)",
        assumes="every row has exactly one 1",
    )


def _readers(step: StepView, flow: Flow, made: list[int]) -> list[int]:
    """The operations that read the rows, through conversions."""
    found: dict[int, None] = {}
    waiting = list(made)
    while waiting:
        index = waiting.pop()
        for value in flow.makes[index]:
            for reader in flow.values[value].readers:
                if reader in found or reader in made:
                    continue
                name = step.op_records[reader].name.rpartition("::")[2]
                if name in _HANDS_ON:
                    waiting.append(reader)
                    found[reader] = None
                elif name in _PRODUCTS:
                    found[reader] = None
    return list(found)


def _is_product(step: StepView, index: int) -> bool:
    return step.op_records[index].name.rpartition("::")[2] in _PRODUCTS


FAULT = Fault(
    id="one-hot-products",
    title="One-hot products instead of lookups",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
)
