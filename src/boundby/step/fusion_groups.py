"""Which operations a compiler can fuse into one kernel, and the bytes that it still has to move.

Operations that pass values to each other without a product in between are one chain: values read
only inside it never go to memory. A value that only the backward reads is recomputed if its inputs
are smaller. Reductions over whole columns, and reads or writes at scattered places, stay passes of
their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from boundby.model import Phase
from boundby.model.assumptions.savings import COLUMN_REDUCTION_LAUNCHES
from boundby.step.dataflow import Flow
from boundby.step.graph_break_regions import graph_break_rows
from boundby.step.index_searches import searches
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord
from boundby.step.reductions import reduces_over_rows

_FUSIBLE = ("elementwise", "normalization", "movement")
_ELSEWHERE = ("host_link", "network", "python")
# A CPU makes random numbers one after the other, in any kernel.
_RANDOM = ("bernoulli", "dropout", "rand", "normal_", "exponential_", "uniform_")
# Each adds at places that others add at too: a library call, or no pass over memory.
_SCATTERS = ("upsample_", "grid_sampler_", "_adaptive_avg_pool", "adaptive_max_pool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Operations that could be one kernel, and the bytes it would still have to move."""

    op_records: list[int]
    bytes: float
    reductions: int  # launches for these, beside the one that uses them


def chains_of(step: StepView, flow: Flow) -> list[Chain]:
    """Chains of operations that could be fused: they pass values on without a product in
    between."""
    op_records = step.op_records
    fusible = [is_fusible(step, index) for index in range(len(op_records))]
    depth = _depths(op_records, flow, fusible)
    leader = list(range(len(op_records)))

    def lead(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for index in flow.order:
        if not fusible[index]:
            continue
        for maker in flow.makers[index]:
            if (
                fusible[maker]
                and depth[maker] == depth[index]
                and op_records[maker].phase == op_records[index].phase
            ):
                leader[lead(index)] = lead(maker)
    members: dict[int, list[int]] = defaultdict(list)
    for index in flow.order:
        if fusible[index]:
            members[lead(index)].append(index)
    groups = list(members.values())
    remade = _made_again(step, flow, groups, fusible)
    return [
        Chain(
            op_records=group,
            bytes=_moved(step, flow, group, remade),
            reductions=sum(
                COLUMN_REDUCTION_LAUNCHES.value
                * reduces_over_rows(op_records[index].name, step.call(op_records[index]))
                for index in group
            ),
        )
        for group in groups
    ]


def _made_again(
    step: StepView, flow: Flow, groups: Sequence[list[int]], fusible: Sequence[bool]
) -> dict[int, dict[int, float]]:
    """Values that only chains of the backward read, and what each is made from.

    A compiler does not save such a value: it saves what the value was made from, if that is smaller
    than writing and reading it (except results of reductions, which are small and saved).
    """
    op_records = step.op_records
    remade = {}
    for group in groups:
        if op_records[group[0]].phase == Phase.BACKWARD:
            continue
        inside = set(group)
        for index in group:
            for value in flow.makes[index]:
                readers = [reader for reader in flow.values[value].readers if reader not in inside]
                later = [
                    fusible[reader] and op_records[reader].phase == Phase.BACKWARD
                    for reader in readers
                ]
                if not readers or not all(later):
                    continue
                sources = _sources(op_records, flow, index, inside)
                if sources and sum(sources.values()) < 2 * flow.values[value].bytes:
                    remade[value] = sources
    return remade


def _sources(
    op_records: Sequence[OpRecord], flow: Flow, index: int, inside: set[int]
) -> dict[int, float] | None:
    """The values outside a chain that an operation's result is made from; None if random numbers
    are used."""
    sources: dict[int, float] = {}
    visited, rest = {index}, [index]
    while rest:
        index = rest.pop()
        if is_random(op_records[index]):
            return None
        for value, size in flow.reads[index].items():
            maker = flow.values[value].maker
            if maker not in inside:
                sources[value] = max(sources.get(value, 0.0), size)
            elif maker not in visited:
                visited.add(maker)
                rest.append(maker)
    return sources


def is_fusible(step: StepView, index: int) -> bool:
    record = step.op_records[index]
    if step.device == "cpu" and is_random(record):
        return False
    return (
        record.op_class in _FUSIBLE
        and not searches(record)
        and not _scatters(record)
        and record.phase != Phase.OPTIMIZER
        and record.bound not in _ELSEWHERE
        and index not in step.unfusible
        and index not in graph_break_rows(step).op_records
        and not step.is_for_data(record)
        and record.ns > 0
    )


def _scatters(record: OpRecord) -> bool:
    return record.name.endswith("_backward") and any(part in record.name for part in _SCATTERS)


def is_random(record: OpRecord) -> bool:
    return any(part in record.name for part in _RANDOM) and not record.name.endswith("_backward")


def _depths(op_records: Sequence[OpRecord], flow: Flow, fusible: Sequence[bool]) -> list[int]:
    """The number of operations that cannot be fused before each one, on the longest path.

    Operations of equal depth have none of those between them, so fusing them creates no cycle.
    """
    depth = [0] * len(op_records)
    for index in flow.order:
        for maker in flow.makers[index]:
            # Operations that an edit removed separate nothing.
            stands = op_records[maker].ns > 0 and not fusible[maker]
            depth[index] = max(depth[index], depth[maker] + stands)
    return depth


def _moved(
    step: StepView, flow: Flow, group: list[int], again: dict[int, dict[int, float]]
) -> float:
    """The bytes that enter and leave a chain; values that only its own operations read stay
    inside."""
    inside = set(group)
    entering: dict[int, float] = {}
    moved = 0.0
    for index in group:
        for value, size in flow.reads[index].items():
            if flow.values[value].maker in inside:
                continue
            for source, read in again.get(value, {value: size}).items():
                entering[source] = max(entering.get(source, 0.0), read)
        for value in flow.makes[index]:
            made = flow.values[value]
            if value not in again and any(reader not in inside for reader in made.readers):
                moved += made.bytes
        record = step.op_records[index]
        if reduces_over_rows(record.name, step.call(record)):
            moved += sum(flow.reads[index].values())
    return moved + sum(entering.values())
