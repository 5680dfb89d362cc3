"""The operations of a step on a CPU, where there are no kernel events: operators are timed
themselves.

An operator's overhead is at most the cost of an eager operator call. Profiler overhead is
subtracted per event; it is known well, because on a CPU nothing overlaps, and a profiled step is
longer than a clean one by that overhead alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby import ops as costs
from boundby.model import PYTHON_FRAMES, Cost, HostKind, Ints, Machine, Precision, Timeline
from boundby.model.intervals import union
from boundby.step.nesting import Mask, nearest
from boundby.step.op_record import Costs, OpRecord, allowed_dtype, bound_of
from boundby.step.profiler_overhead import ProfilerOverhead

# Events of compiled code before it runs: lookup and guards. The own time of a
# compiled region is not included: if its generated kernels leave no events, it is their time.
_CHORES = ("TorchDynamo Cache Lookup", "Pregraph bytecode", "AOTDispatcher Runtime Wrapper")

_GENERATED, _GENERATED_CODE = "cpp_fused_", "## Call CompiledFxGraph"
_NAMELESS = "<built-in function kernel>"
# Smaller tensors reuse memory that others have freed.
_MAPPED = 128 << 10
_PAGE = 4096  # bytes of a page of Linux on x86


class DispatchCost(NamedTuple):
    """Dispatch time: of each row that counts as an operation, and of all operations with a cost."""

    counted: Mask
    ns: npt.NDArray[np.float64]
    costed_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraPages:
    """Memory pages that the operating system gave to a profiled step, more than to clean ones."""

    count: float
    each_ns: float


class Operators:
    """A step's calls with their costs, and which of them do work themselves."""

    def __init__(self, timeline: Timeline, machine: Machine) -> None:
        self.timeline, self.machine = timeline, machine
        self.costed = Costs(timeline, machine)
        self.working = _working(timeline, self.costed)

    def paged_ns(self, pages: ExtraPages | None) -> npt.NDArray[np.float64]:
        """The cost of fresh memory in each row: for the large tensors that it makes, as far as all
        of them can be fresh. Other page faults are the profiler's."""
        host, names = self.timeline.host, self.timeline.names
        made = np.zeros(len(host))
        for row in np.flatnonzero(self.working) if pages else ():
            cost = self.costed.of_call[host.call[row]]
            in_place = names[host.name[row]].endswith("_")
            if cost is not None and not in_place and cost.bytes_written >= _MAPPED:
                made[row] = cost.bytes_written / _PAGE
        total = float(made.sum())
        if pages is None or not total:
            return made
        return made * (min(1.0, pages.count / total) * pages.each_ns)


def cpu_work(
    operators: Operators,
    precision: Precision,
    dilation: ProfilerOverhead,
    paged_ns: npt.NDArray[np.float64],
) -> tuple[list[OpRecord], DispatchCost]:
    """One `OpRecord` per operator call that does work itself, and their overhead."""
    timeline, machine = operators.timeline, operators.machine
    costed, works_itself = operators.costed, operators.working
    host = timeline.host
    is_unknown = _without_cost(timeline, costed, works_itself)
    counted = works_itself | is_unknown
    within = nearest(host.parent, counted)
    eager_op_ns = machine.overheads.eager_op_ns or 0.0
    own_ns = _own_times(timeline, counted, within)
    # Without the profiler, what Python calls takes at least as long as an operator that does
    # nothing, whatever part of the step's delay its events have been given.
    called = counted & ~np.append(host.kind == HostKind.OP, False)[host.parent]
    least = np.where(called, np.minimum(own_ns, eager_op_ns), 0.0)
    net = np.maximum(own_ns - _observed(within, dilation) - paged_ns, least)
    kernel = np.clip(net - eager_op_ns, 0.0, None)
    dispatch_ns = np.where(counted, net - kernel, 0.0)
    op_records = []
    for row in np.flatnonzero(counted):
        if is_unknown[row] and not kernel[row]:
            continue
        record = OpRecord(
            name=timeline.names[host.name[row]],
            op_class="unknown",
            bound="unknown",
            ns=float(kernel[row]),
            exposed_ns=float(kernel[row]),
            row=int(row),
            source=int(host.source[row]),
            inside=-1 if host.inside is None else int(host.inside[row]),
            module=int(host.module[row]),
            phase=int(host.phase[row]),
            call=int(host.call[row]),
        )
        cost = costed.of_call[record.call] if works_itself[row] else None
        if cost is not None:
            cost = costed.on(cost, allowed_dtype(precision, record.name, on_cuda=False))
            record.cost = cost
            record.floor_ns = machine.floor(cost)
            record.op_class = costs.op_class(record.name) or "unknown"
            # An operation shorter than its dispatch is overhead, and too short to compare.
            is_small = kernel[row] < eager_op_ns
            record.bound = "small" if is_small else bound_of(machine, cost, 1)
            if record.op_class == "communication":
                record.bound, record.floor_ns = (
                    "network",
                    None,
                )  # the memory roof does not apply to the network
        op_records.append(record)
    _hide_background(op_records, timeline)
    return op_records, DispatchCost(counted, dispatch_ns, float(dispatch_ns[works_itself].sum()))


def _hide_background(op_records: list[OpRecord], timeline: Timeline) -> None:
    """Give a collective on its own thread the time in which nothing else runs.

    The thread that called it waits in an operator of the same time: `c10d::allreduce_` there,
    `gloo:all_reduce` here.
    """
    host = timeline.host

    def is_background(record: OpRecord) -> bool:
        return record.op_class == "communication" and host.kind[record.row] != HostKind.OP

    rows = np.array([record.row for record in op_records if not is_background(record)], np.int64)
    begins, ends = union(host.start_ns[rows], host.duration_ns[rows])
    for record in filter(is_background, op_records):
        start = host.start_ns[record.row]
        end = start + host.duration_ns[record.row]
        covered = np.clip(np.minimum(ends, end) - np.maximum(begins, start), 0, None).sum()
        record.exposed_ns *= 1 - float(covered) / max(1.0, float(end - start))


def _working(timeline: Timeline, costed: Costs) -> Mask:
    """Rows that do work themselves instead of calling operators that do."""
    host = timeline.host
    parent = host.parent
    flops, moved = np.zeros(len(host)), np.zeros(len(host))
    working = np.zeros(len(host), np.bool_)
    # Inner rows come after the rows around them: going backwards, each row's inner rows are
    # complete.
    for row in range(len(host) - 1, -1, -1):
        call = int(host.call[row])
        cost = costed.of_call[call] if call >= 0 and costed.is_costed[call] else None
        if cost is not None:
            inside = Cost(flops={"all": flops[row]}, bytes_read=moved[row])
            own_cost = costs.own_cost(cost, inside)
            if own_cost.bytes or own_cost.total_flops:
                working[row] = True
                flops[row] += own_cost.total_flops
                moved[row] += own_cost.bytes
        if parent[row] >= 0:
            flops[parent[row]] += flops[row]
            moved[parent[row]] += moved[row]
    return working


def _without_cost(timeline: Timeline, costed: Costs, working: Mask) -> Mask:
    """Operators without a known cost, outside of any with one: those known to do work, and leaves.

    A wrapper without a formula that calls other operators does no work itself.
    """
    host = timeline.host
    operator = host.kind == HostKind.OP
    has_cost = np.array([*(cost is not None for cost in costed.of_call), False])[host.call]
    candidate = operator & ~has_cost
    around = np.zeros(len(host), np.bool_)
    inner = host.parent[operator & (host.parent >= 0)]
    around[np.unique(inner)] = True
    op_records = np.array([costs.op_class(name) is not None for name in timeline.names] or [False])
    candidate &= ~around | op_records[host.name]
    chores = np.array([name.startswith(_CHORES) for name in timeline.names] or [False])
    candidate &= ~chores[host.name] & ~_calling_generated(timeline)
    outside: Mask = candidate & (nearest(host.parent, working) < 0)
    return outside


def _calling_generated(timeline: Timeline) -> Mask:
    """Rows around generated code whose kernels were recorded, or that has none: they only call.

    If calls of Python functions were recorded, so were calls of kernels; some may have no name.
    """
    host = timeline.host

    def named(start: str) -> Mask:
        return np.array([name.startswith(start) for name in timeline.names] or [False])[host.name]

    is_python = np.isin(host.kind, PYTHON_FRAMES)
    recorded = np.zeros(len(host), np.bool_)
    recorded[np.unique(host.parent[is_python & (host.parent >= 0)])] = True
    has_kernels = (named(_GENERATED) & ~is_python) | (named(_GENERATED_CODE) & recorded)
    return _around(host.parent, has_kernels) & ~_around(host.parent, named(_NAMELESS) & is_python)


def _around(parent: npt.NDArray[np.int32], inner: Mask) -> Mask:
    """The rows around some rows."""
    around = np.zeros(len(parent), np.bool_)
    rows = np.flatnonzero(inner)
    while len(rows):
        rows = np.unique(parent[rows])
        rows = rows[(rows >= 0) & ~around[rows]]
        around[rows] = True
    return around


def _own_times(timeline: Timeline, counted: Mask, within: Ints) -> npt.NDArray[np.float64]:
    """Durations minus those of counted rows inside."""
    host = timeline.host
    rows = np.flatnonzero(counted)
    outer = np.where(host.parent[rows] >= 0, within[host.parent[rows]], -1)
    inside = np.zeros(len(host))
    np.add.at(inside, outer[outer >= 0], host.duration_ns[rows[outer >= 0]])
    own_ns: npt.NDArray[np.float64] = host.duration_ns - inside
    return own_ns


def _observed(within: Ints, dilation: ProfilerOverhead) -> npt.NDArray[np.float64]:
    """The profiler overhead of the events in each counted row, itself included."""
    cost = np.zeros(len(within))
    np.add.at(cost, within[within >= 0], dilation.event_ns[within >= 0])
    return cost
