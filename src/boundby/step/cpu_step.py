"""A step on a CPU at the pace of the clean ones, which carry no profiler and may wait otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boundby.model import HostKind, Machine, Precision, Timeline
from boundby.model.assumptions.verdict import DISTURBED_CPU
from boundby.model.intervals import union
from boundby.step.cpu_ops import ExtraPages, Operators, cpu_work
from boundby.step.host_intervals import HostIntervals
from boundby.step.host_time import LineTimes, host_time_by_line
from boundby.step.idle_causes import CPU_WAIT
from boundby.step.nesting import nearest
from boundby.step.op_record import OpRecord
from boundby.step.profiler_overhead import find_profiler_overhead

# With less of its time on a core than this, what the profiled step ran for is a small difference of
# two large numbers, one of which also counts waiting outside of the step; it may come out as zero.
_LEAST_ON_CORE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuWait:
    """How long a step stood ready without a core that it could have run on."""

    clean_ns: float
    profiled_ns: float


class CpuStep(NamedTuple):
    """What a step does, at the clean steps' pace. `dispatch_ns`: what asking for its work took;
    `waits`: for data, and for a core where that is known; `spent`: the lines at which there was no
    work; `scaled`: by what all of it was scaled down."""

    op_records: list[OpRecord]
    dispatch_ns: float
    waits: dict[str, float]
    spent: LineTimes
    scaled: float


def cpu_step(
    timeline: Timeline,
    machine: Machine,
    precision: Precision,
    where: HostIntervals,
    *,
    wall_ns: float,
    phases: Mapping[str, float],
    data_ns: float | None,
    cpu_wait: CpuWait | None,
    fresh_pages: ExtraPages | None,
) -> CpuStep:
    """The profiled step without what only it paid for: the profiler, memory, waiting."""
    # Without waiting, for data or a core: what is left is one step's own, clean and profiled.
    waited = 0.0 if data_ns is None else _waited_for_data(timeline)
    lost = cpu_wait or CpuWait(clean_ns=0.0, profiled_ns=0.0)
    clean = max(0.0, wall_ns - (data_ns or 0.0) - lost.clean_ns)
    profiled = max(1.0, timeline.wall_ns - waited)
    on_core = 1 - lost.profiled_ns / profiled
    if on_core < _LEAST_ON_CORE:
        # As much as the clean steps, of which there are more.
        on_core = max(_LEAST_ON_CORE, clean / max(1.0, wall_ns - (data_ns or 0.0)))
    own = _without_waiting(phases, (data_ns or 0.0) / wall_ns)
    as_profiled = clean / on_core
    operators = Operators(timeline, machine)
    paged = operators.paged_ns(fresh_pages)
    paged_ns = float(paged.sum())
    dilation = find_profiler_overhead(
        timeline,
        where,
        wall_ns=as_profiled + paged_ns + waited,
        phases=own,
        on_core=on_core,
    )
    op_records, asked = cpu_work(operators, precision, dilation, paged)
    spent = host_time_by_line(timeline, where, asked, dilation)
    pace = as_profiled / max(1.0, profiled - dilation.total_ns - paged_ns)
    slower = on_core * min(DISTURBED_CPU.value, pace)
    if lost.clean_ns:
        held = asked.costed_ns + sum(work.exposed_ns for work in op_records)
        slower = min(slower, clean / max(1.0, held))
    for work in op_records:
        work.ns *= slower
        work.exposed_ns *= slower
    data = slower * spent.total("data")
    if data_ns is not None:
        # Where a batch is made by operators, those have their own time.
        data = max(0.0, data_ns - _work_for_data(timeline, op_records))
    waits = {"data": data} | ({CPU_WAIT: cpu_wait.clean_ns} if cpu_wait else {})
    return CpuStep(op_records, slower * asked.costed_ns, waits, spent, min(1.0, pace))


def _without_waiting(phases: Mapping[str, float], share: float) -> dict[str, float]:
    """The phases of a step of which a share is waiting for batches, between the others."""
    other = phases.get("other", 0.0) - share * sum(phases.values())
    return {**phases, "other": max(0.0, other)} if share else dict(phases)


def _work_for_data(timeline: Timeline, op_records: Sequence[OpRecord]) -> float:
    """Of the work, what is done inside a loader that makes its batches itself."""
    host = timeline.host
    loads = np.append(nearest(host.parent, host.kind == HostKind.DATA) >= 0, False)
    return sum(work.exposed_ns for work in op_records if loads[work.row])


def _waited_for_data(timeline: Timeline) -> float:
    """How long the profiled step waited for its batches."""
    host = timeline.host
    waiting = host.kind == HostKind.DATA
    begins, ends = union(host.start_ns[waiting], host.duration_ns[waiting])
    return float((ends - begins).sum())
