"""Which operation makes the values that another one reads.

A value is the content of a piece of memory from the time an operator writes it until another
overwrites it. The addresses are those of the process itself, so makers and readers are certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from boundby.model import Tensor, Timeline
from boundby.step.nesting import nearest
from boundby.step.op_record import OpRecord

OUTSIDE = -1  # the maker of values from before the step
# Operators that write their first argument without reading it.
_OVERWRITING = ("::copy_", "::fill_", "::zero_")
# Products with an optional output tensor, as compiled code uses: after this many tensors.
_OUT_AT = {
    "aten::mm": 2,
    "aten::bmm": 2,
    "aten::_int_mm": 2,
    "aten::addmm": 3,
    "aten::baddbmm": 3,
}
# Inductor's names for GPU kernels that only copy numbers, in another dtype or order.
_COPYING = re.compile(
    r"triton_poi_fused_((_to_copy|_unsafe_view|clone|expand|permute|t|transpose|view)_)+\d+"
)


@dataclass(slots=True, kw_only=True)
class Value:
    """`maker` is the operation that writes it; OUTSIDE if it is from before the step."""

    maker: int
    bytes: float
    readers: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Flow:
    """The step's values, and what each operation reads and makes."""

    values: list[Value]
    reads: list[dict[int, float]]  # value -> bytes of it that are read
    arguments: list[list[int | None]]  # the value in each tensor of the call; None if unknown
    makes: list[list[int]]
    makers: list[set[int]]  # the operations whose values this one reads
    # operations in the order in which the host finished issuing them: inner calls first
    order: list[int]


def flow_of(timeline: Timeline, op_records: Sequence[OpRecord]) -> Flow | None:
    """The flow of a step; None if memory was not recorded, as in a trace file."""
    if timeline.allocations is None or not len(timeline.allocations):
        return None
    allocated, fresh = _taken(timeline, op_records)
    flow = Flow(
        values=[],
        reads=[{} for _ in op_records],
        arguments=[[] for _ in op_records],
        makes=[[] for _ in op_records],
        makers=[set() for _ in op_records],
        order=_issue_order(timeline, op_records),
    )
    current: dict[int, int] = {}
    inside = _inside(timeline, op_records)
    for index in flow.order:
        record = op_records[index]
        # Memory allocated outside of any operation holds nothing until it is written.
        while fresh and fresh[-1][0] <= record.row:
            current.pop(fresh.pop()[1], None)
        tensors = _tensors(timeline, record)
        written = _written_at(record.name, tensors)
        for position, tensor in enumerate(tensors):
            read = tensor.storage and position != written
            flow.arguments[index].append(_read(flow, current, index, tensor) if read else None)
        made = allocated.get(index, [])
        if written:
            made = [*made, *((out.storage, out.bytes) for out in tensors[written:] if out.storage)]
        for storage, size in made:
            _read_own(flow, current, index, inside, storage)
            _make(flow, current, index, storage, size)
        if record.name.endswith("_") and tensors and tensors[0].storage:
            _make(flow, current, index, tensors[0].storage, tensors[0].bytes)
        makers = {flow.values[value].maker for value in flow.reads[index]}
        flow.makers[index] = makers - {OUTSIDE, index}
    return flow


def _written_at(name: str, tensors: Sequence[Tensor]) -> int | None:
    """The position of the tensor that an operator writes without reading, by its name; None for
    none."""
    if name.endswith(_OVERWRITING):
        return 0
    if len(tensors) == 2 and _COPYING.fullmatch(name):
        return 1
    return _OUT_AT.get(name)


def _read(flow: Flow, current: dict[int, int], index: int, tensor: Tensor) -> int:
    assert tensor.storage is not None
    value = current.get(tensor.storage)
    if value is None:
        value = current[tensor.storage] = len(flow.values)
        flow.values.append(Value(maker=OUTSIDE, bytes=tensor.bytes))
    current_value = flow.values[value]
    current_value.bytes = max(current_value.bytes, tensor.bytes)
    if index not in current_value.readers[-1:]:
        current_value.readers.append(index)
    flow.reads[index][value] = max(flow.reads[index].get(value, 0.0), tensor.bytes)
    return value


def _read_own(
    flow: Flow, current: dict[int, int], index: int, inside: Sequence[int], storage: int
) -> None:
    """Add what an operation reads of its own memory: values that the operations it calls wrote
    there."""
    value = current.get(storage)
    if value is not None and (maker := flow.values[value].maker) >= 0 and inside[maker] == index:
        flow.values[value].readers.append(index)
        flow.reads[index][value] = flow.values[value].bytes


def _make(flow: Flow, current: dict[int, int], index: int, storage: int, size: float) -> None:
    previous = current.get(storage)
    if previous is not None and previous in flow.makes[index]:
        return
    current[storage] = len(flow.values)
    flow.makes[index].append(len(flow.values))
    flow.values.append(Value(maker=index, bytes=size))


def _tensors(timeline: Timeline, record: OpRecord) -> tuple[Tensor, ...]:
    return timeline.calls[record.call].tensors if record.call >= 0 else ()


def _issue_order(timeline: Timeline, op_records: Sequence[OpRecord]) -> list[int]:
    """Operations by their ends: a product on a CPU calls a copy of its bias first, and adds to
    that."""
    host = timeline.host
    ends = host.start_ns + host.duration_ns
    placed = [index for index, record in enumerate(op_records) if record.row >= 0]
    # Of two that end together, the inner one began later.
    return sorted(placed, key=lambda i: (int(ends[op_records[i].row]), -op_records[i].row))


def _inside(timeline: Timeline, op_records: Sequence[OpRecord]) -> list[int]:
    """For each operation the one that calls it; OUTSIDE for none."""
    index_of = {record.row: index for index, record in enumerate(op_records) if record.row >= 0}
    around = nearest(timeline.host.parent, _is_work(timeline, index_of))
    parents = timeline.host.parent
    callers = []
    for record in op_records:
        parent = int(parents[record.row]) if record.row >= 0 else -1
        callers.append(index_of.get(int(around[parent]), OUTSIDE) if parent >= 0 else OUTSIDE)
    return callers


def _is_work(timeline: Timeline, rows: Iterable[int]) -> npt.NDArray[np.bool_]:
    is_work = np.zeros(len(timeline.host), np.bool_)
    is_work[list(rows)] = True
    return is_work


def _taken(
    timeline: Timeline, op_records: Sequence[OpRecord]
) -> tuple[dict[int, list[tuple[int, float]]], list[tuple[int, int]]]:
    """The memory that each operation, or what it calls, allocated.

    Also what was allocated outside of operations: when (the row) and where, the latest first.
    """
    allocations = timeline.allocations
    assert allocations is not None
    index_of = {record.row: index for index, record in enumerate(op_records) if record.row >= 0}
    around = nearest(timeline.host.parent, _is_work(timeline, index_of))
    allocated: dict[int, list[tuple[int, float]]] = {}
    fresh: list[tuple[int, int]] = []
    for row, storage, size in zip(
        allocations.row.tolist(),
        allocations.storage.tolist(),
        allocations.bytes.tolist(),
        strict=True,
    ):
        owner = int(around[row])
        if owner >= 0:
            allocated.setdefault(index_of[owner], []).append((storage, float(size)))
        else:
            fresh.append((row, storage))
    return allocated, fresh[::-1]
