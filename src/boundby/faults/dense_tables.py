"""A step uses a few rows of an embedding table but updates all of them.

What it looks for
    Embedding gradients of the size of their table, of which the step used at most a tenth of the
    rows. The other rows are zeros, which are filled in first and read by every pass of the
    optimizer.

Why it costs time
    The traffic of a step grows with the table instead of the batch: one fill and, for Adam, about
    ten passes over the weights, the gradient and both moments. A sparse gradient holds only the
    used rows, so each pass touches as many rows as the batch uses.

What to change
    Use `nn.Embedding(..., sparse=True)` or `nn.EmbeddingBag(..., sparse=True)`. Give the tables to
    `torch.optim.SparseAdam` and keep the present optimizer for the other parameters. SGD and
    Adagrad accept sparse gradients directly.

When it does not help
    The training is not exactly the same: SparseAdam does not update the moments of unused rows,
    where Adam decays them and keeps moving the rows; and it has no weight decay. Momentum, gradient
    norm clipping and most wrappers do not accept sparse gradients. Tables that are tied to the
    output layer cannot be sparse and are not reported. On a device that waits for its host it may
    be slower: SparseAdam calls about thirty operators per table, which call others.

Measured on
    A recommender with four tables of 400,000 rows and 512 samples per step, two busy CPU cores: 8
    and 10 times as fast with SparseAdam instead of Adam (2.5 times as fast as fused Adam), 5 and 4
    times with SGD. One table of 400,000 rows beside a small model on an H200: 8.1 to 2.4 ms, 71%
    less; predicted 66% (47 to 74).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from boundby.faults.fault import Detection, Fault
from boundby.faults.unfused_optimizer import class_of
from boundby.model import Phase, Tensor
from boundby.model.assumptions.detection import USED_ROWS
from boundby.model.assumptions.savings import TABLE_OPERATORS, TABLE_ROW_PASSES
from boundby.ops.registry import NotRecordedError
from boundby.ops.traffic import integer
from boundby.step.batch_invariant import is_set
from boundby.step.dataflow import Flow
from boundby.step.model import Edit, StepView

# Operators with the number of a table's rows as an argument; indices come second.
_GRADIENTS = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
_ADDED = ("::add", "::add_")
_ADAM = ("Adam", "AdamW")
# Operators that take gradients of rows; some pass them on unchanged.
_TAKING_ROWS = ("SGD", "Adagrad")
_SMALLEST_TABLE = 4e6  # bytes; assumed: smaller tables stay in a cache


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """`ops` make its gradients, one for each lookup, and `sums` add them."""

    ops: tuple[int, ...]
    shape: tuple[int, ...]
    used: int  # the most rows used
    fills: tuple[int, ...]  # operations that fill its gradients with zeros
    sums: tuple[int, ...] = ()


def detect(step: StepView) -> Detection | None:
    optimizer = class_of(step)
    if step.flow is None or (optimizer is not None and optimizer not in _ADAM + _TAKING_ROWS):
        return None
    tables = _summed(step, step.flow, list(_lookups(step, step.flow)))
    if not tables:
        return None
    to_adam = optimizer not in _TAKING_ROWS
    ops = [step.op_records[index] for table in tables for index in table.ops]
    bag = all("bag" in op.name for op in ops)
    change = f"nn.Embedding{'Bag' * bag}(..., sparse=True)"
    return Detection(
        low=_of_rows(step, tables, TABLE_ROW_PASSES.high, TABLE_OPERATORS.high),
        expected=_of_rows(step, tables, TABLE_ROW_PASSES.value, TABLE_OPERATORS.value),
        high=_of_rows(step, tables, TABLE_ROW_PASSES.low, TABLE_OPERATORS.low),
        where=step.lines(ops)[:3],
        change=f"{change}  # its weights to torch.optim.SparseAdam" if to_adam else change,
        assumes="rows that a step does not use need no update (moments, weight decay), and nothing "
        "else, such as clipping, reads the whole gradient",
    )


def _lookups(step: StepView, flow: Flow) -> Iterator[_Table]:
    """The gradient of each lookup, as if each had a table of its own."""
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        place = _GRADIENTS.get(record.name)
        if place is None or call is None or len(call.tensors) < 2:
            continue
        gradient, indices = call.tensors[:2]
        try:
            rows = integer(call, place)
        except NotRecordedError:
            continue
        table = Tensor(shape=(rows, gradient.shape[-1]), dtype=gradient.dtype)
        if table.bytes < _SMALLEST_TABLE or indices.elements > USED_ROWS.value * rows:
            continue
        read = (flow.values[value] for value in flow.reads[index])
        fills = tuple(value.maker for value in read if is_set(step, value))
        yield _Table(ops=(index,), shape=table.shape, used=indices.elements, fills=fills)


def _summed(step: StepView, flow: Flow, lookups: list[_Table]) -> list[_Table]:
    """One table for all lookups whose gradients are added; none if one that has every row is."""
    made = {index: table for table in lookups for index in table.ops}
    for index in flow.order:
        record = step.op_records[index]
        if record.phase != Phase.BACKWARD or not record.name.endswith(_ADDED):
            continue
        makers = {flow.values[value].maker for value in flow.reads[index]}
        parts = list({id(made[maker]): made[maker] for maker in makers if maker in made}.values())
        if not parts:
            continue
        if all(maker in made for maker in makers):
            whole = _joined(parts, index)
            members = (*whole.ops, *whole.sums)
            made |= dict.fromkeys(members, whole)
        else:
            gone = {member for part in parts for member in (*part.ops, *part.sums)}
            made = {maker: table for maker, table in made.items() if maker not in gone}
    return list({id(table): table for table in made.values()}.values())


def _joined(parts: list[_Table], addition: int) -> _Table:
    return _Table(
        ops=tuple(index for part in parts for index in part.ops),
        shape=parts[0].shape,
        used=sum(part.used for part in parts),
        fills=tuple(index for part in parts for index in part.fills),
        sums=(*(index for part in parts for index in part.sums), addition),
    )


def _of_rows(step: StepView, tables: list[_Table], passes: float, operators: int) -> Edit:
    left = _left(tables, passes)
    op_ns = {fill: 0.0 for table in tables for fill in table.fills}
    op_ns |= {
        index: step.op_records[index].ns * left[table.shape]
        for table in tables
        for index in table.sums
    }
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if record.phase != Phase.OPTIMIZER or call is None:
            continue
        whole = sum(tensor.bytes for tensor in call.tensors)
        spared = sum(
            tensor.bytes * (1 - left[tensor.shape])
            for tensor in call.tensors
            if tensor.shape in left
        )
        if spared:
            op_ns[index] = record.ns * (1 - spared / whole)
    more = len(tables) * operators * (step.machine.overheads.eager_op_ns or 0.0)
    updating = (i for i in op_ns if step.op_records[i].phase == Phase.OPTIMIZER)
    return Edit.set_time(op_ns) + Edit.add_host(updating, more)


def _left(tables: list[_Table], passes: float) -> dict[tuple[int, ...], float]:
    """The remaining share of all operations on tables of one shape."""
    used: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for table in tables:
        used[table.shape].append(table.used)
    return {
        shape: min(1.0, passes * sum(rows) / (len(rows) * shape[0])) for shape, rows in used.items()
    }


FAULT = Fault(
    id="dense-tables",
    title="Embedding tables updated in full",
    kind="mistake",
    group="bandwidth",
    document=__doc__,
    detect=detect,
    excludes=("unfused-optimizer",),
)
