"""A product with one-hot rows is used where a lookup would do.

What it looks for
    Operators that make one-hot rows, with `F.one_hot`, as rows of `torch.eye`, by scattering ones
    into zeros or by comparing with `torch.arange`, and products or sums that read them.

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

from collections.abc import Iterator

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import LOOKUP_LEFT
from boundby.ops.traffic import argument
from boundby.step.dataflow import OUTSIDE, Flow
from boundby.step.model import Edit, StepView
from boundby.step.nesting import Mask

_ONE_HOT = "aten::one_hot"
_TAKES_ROWS = ("index", "index_select", "embedding")
_ZEROS = ("aten::zeros", "aten::zeros_like", "aten::new_zeros", "aten::zero_")
_PRODUCTS = ("mm", "addmm", "bmm", "linear", "mul", "matmul", "dot", "mv", "sum")
_HANDS_ON = ("copy_", "to", "_to_copy", "clone", "contiguous", "add", "neg", "sub")


def detect(step: StepView) -> Detection | None:
    flow = step.flow
    made = list(dict.fromkeys(_making(step, flow))) if flow is not None else []
    if not made or flow is None:
        return None
    following = _readers(step, flow, made)
    products = [i for i in following if _is_product(step, i)]
    if not products:
        return None
    gone = list(dict.fromkeys([*made, *following]))
    where = step.lines(step.op_records[i] for i in (*made, *following))
    return Detection(
        low=Edit.set_time({i: step.op_records[i].ns * LOOKUP_LEFT.high for i in gone}),
        expected=Edit.set_time({i: step.op_records[i].ns * LOOKUP_LEFT.value for i in gone}),
        high=Edit.remove(gone),
        where=where,
        change="x = F.embedding(index, weight.t())  # or F.cross_entropy(logits, index)",
        assumes="every row has exactly one 1",
    )


def _making(step: StepView, flow: Flow) -> Iterator[int]:
    """The operations that make one-hot rows."""
    one_hot, identity = step.within(_ONE_HOT), step.within("aten::eye")
    numbers, zeros = step.within("aten::arange"), step.within(*_ZEROS)
    for index, record in enumerate(step.op_records):
        call, given = step.call(record), flow.arguments[index]
        if record.row >= 0 and one_hot[record.row]:
            yield index
        # The indices of a part are not always recorded.
        tensors = call.tensors if call is not None else ()
        if call is None or not tensors:
            continue
        name, first = record.name.rpartition("::")[2], tensors[0]
        if name in _TAKES_ROWS and (made := _made_by(step, flow, given[0], identity)) is not None:
            yield from (made, index)
        if len(tensors) < 2:
            continue
        second = tensors[1]
        if name in ("scatter", "scatter_") and argument(call, 3) == 1:
            # One index in each row: several are the edges of a graph.
            made = _made_by(step, flow, given[0], zeros)
            dim = argument(call, 1)
            if made is not None and isinstance(dim, int) and second.shape[dim:][:1] == (1,):
                yield from (made, index)
        elif name == "eq" and 1 in (first.shape[-1:] + second.shape[-1:]):
            found = (_made_by(step, flow, value, numbers) for value in given[:2])
            made = next((one for one in found if one is not None), None)
            if made is not None:
                yield from (made, index)


def _made_by(step: StepView, flow: Flow, value: int | None, rows: Mask) -> int | None:
    """What made a value, if that is one of these rows."""
    maker = flow.values[value].maker if value is not None else OUTSIDE
    return maker if maker != OUTSIDE and rows[step.op_records[maker].row] else None


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
