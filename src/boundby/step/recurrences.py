"""Recurrences: loops whose iterations need the result of the one before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from boundby.model import HostKind, Ints, Phase
from boundby.step.loop import CHAINED, Loop
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord

# The operators of a recurrent cell, for which there are nn.LSTM, nn.GRU and nn.RNN.
_OF_CELLS = re.compile(
    r"::_?(mm|addmm|linear|sum|add|sub|rsub|mul|neg|cat|copy|clone"
    r"|(sigmoid|tanh|relu|threshold)(_backward)?|thnn_fused_(lstm|gru)_cell(_backward.*)?)_?$"
)
# Sums, counts and running extremes, which have operators for all rounds: sum, cumsum, bincount,
# index_add, scatter_reduce.
_ACCUMULATES = re.compile(
    r"::_?(add|sub|maximum|minimum|select|slice|index|index_put(_impl)?|index_add|copy|fill)_?$"
)


def chained_calls(step: StepView, calls: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The calls of a recurrence, with the inner operators and the backward of each."""
    called = step.memoised(called_operators)
    forward = (group for group in calls if step.op_records[group[0]].phase != Phase.BACKWARD)
    in_chain = {called[index] for group in forward if is_chain(step, group) for index in group}
    for group in calls:
        if sum(called[index] in in_chain for index in group) > len(group) / 2:
            yield group


def is_chain(step: StepView, same: tuple[int, ...]) -> bool:
    """Whether most of these operators depend on one another, as the steps of a recurrence do."""
    flow = step.flow
    if flow is None:
        return False
    at = step.memoised(_issued_at)
    wanted = set(same)
    first, last = min(at[index] for index in same), max(at[index] for index in same)
    depth: dict[int, int] = {}
    for index in flow.order[first : last + 1]:
        before = max((depth.get(maker, 0) for maker in flow.makers[index]), default=0)
        depth[index] = before + (index in wanted)
    return max(depth[index] for index in same) >= CHAINED * len(same)


def _issued_at(step: StepView) -> dict[int, int]:
    flow = step.flow
    return {index: at for at, index in enumerate(flow.order)} if flow is not None else {}


def without_cells(step: StepView, loops: Sequence[Loop]) -> list[Loop]:
    """The loops, without the chains for which there are operators: of recurrent cells, and of sums.

    A cell consists of products and gates alone. Loops whose iterations overlap in time are lines of
    one body.
    """
    kept_loops = []
    for loop in loops:
        first, last = loop.spans
        body = [other for other in loops if other.spans[0] < last and other.spans[1] > first]
        chained = [
            group
            for part in body or [loop]
            for group in part.chained
            if step.op_records[group[0]].phase != Phase.BACKWARD
        ]
        names = {step.op_records[group[0]].name for group in chained}
        is_cell = any(_has_one_weight(step, group) for group in chained) and all(
            map(_OF_CELLS.search, names)
        )
        is_sum = all(map(_ACCUMULATES.search, names))
        kept_loops.append(replace(loop, chained=()) if is_cell or is_sum else loop)
    return kept_loops


def _has_one_weight(step: StepView, same: Sequence[int]) -> bool:
    """Whether products have the same weight each time, as in a cell; layers have different ones."""
    if step.op_records[same[0]].op_class != "contraction":
        return False
    calls = [step.call(step.op_records[index]) for index in same]
    storages = [{tensor.storage for tensor in call.tensors} for call in calls if call is not None]
    return bool(set.intersection(*storages) - {None}) if storages else False


def called_operators(step: StepView) -> Ints:
    """For each record the row of the outermost operator around it, as the script called it; for
    one of the backward that of its forward. `aten::gru` runs its time steps inside of one."""
    host = step.timeline.host
    is_op = (host.kind == HostKind.OP).tolist()
    outermost = np.arange(len(host))
    for row, parent in enumerate(host.parent.tolist()):
        if parent >= 0 and is_op[parent]:
            outermost[row] = outermost[parent]
    return np.array([outermost[forward_row(step, record)] for record in step.op_records], np.int64)


def forward_row(step: StepView, record: OpRecord) -> int:
    forward = int(step.timeline.host.forward[record.row])
    return forward if record.phase == Phase.BACKWARD and forward >= 0 else record.row
