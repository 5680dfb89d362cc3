"""A step on a CPU at the speed of the clean steps, which run without a profiler and may wait
otherwise."""

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
from boundby.step.profiler_overhead import find_profiler_overhead, usual_overhead_ns

# With a smaller share of CPU time than this, the run time of the profiled step is a small
# difference of two large numbers, one of which also includes waiting outside of the step; it may be
# zero.
_LEAST_ON_CORE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuWait:
    """How long a step was runnable but waited for a CPU core."""

    clean_ns: float
    profiled_ns: float


class CpuStepParts(NamedTuple):
    """The operations of a step at the speed of clean steps.

    `dispatch_ns`: time to call operators; `waits`: for data, and for a core if known; `line_times`:
    time without operations, by line; `scaled`: the factor by which everything was scaled down.
    """

    op_records: list[OpRecord]
    dispatch_ns: float
    waits: dict[str, float]
    line_times: LineTimes
    scaled: float


def cpu_step_parts(
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
    slow_ns: float | None = None,
) -> CpuStepParts:
    """The profiled step without what clean steps do not have: profiler overhead, fresh memory,
    other waits. `slow_ns`: the time that few clean steps exceed."""
    # Without waits for data or for a core, clean and profiled time are of the step itself.
    waited = 0.0 if data_ns is None else _waited_for_data(timeline)
    lost = cpu_wait or CpuWait(clean_ns=0.0, profiled_ns=0.0)
    clean = max(0.0, wall_ns - (data_ns or 0.0) - lost.clean_ns)
    profiled = max(1.0, timeline.wall_ns - waited)
    on_core = 1 - lost.profiled_ns / profiled
    if on_core < _LEAST_ON_CORE:
        # Use the share of the clean steps, of which there are more.
        on_core = max(_LEAST_ON_CORE, clean / max(1.0, wall_ns - (data_ns or 0.0)))
    busy_phases = _without_waiting(phases, (data_ns or 0.0) / wall_ns)
    expected_profiled = clean / on_core
    operators = Operators(timeline, machine)
    paged = operators.paged_ns(fresh_pages)
    paged_ns = float(paged.sum())
    # Steps may differ in work: the profiled one is no longer than a slow clean one.
    usual_ns = profiled - paged_ns - usual_overhead_ns(timeline, where)
    most = expected_profiled * max(1.0, (slow_ns or wall_ns) / wall_ns)
    dilation = find_profiler_overhead(
        timeline,
        where,
        wall_ns=min(max(usual_ns, expected_profiled), most) + paged_ns + waited,
        phases=busy_phases,
        on_core=on_core,
        besides_data=data_ns is not None,
    )
    op_records, dispatch = cpu_work(operators, precision, dilation, paged)
    line_times = host_time_by_line(timeline, where, dispatch, dilation)
    speed_ratio = expected_profiled / max(1.0, profiled - dilation.total_ns - paged_ns)
    slower = on_core * min(DISTURBED_CPU.value, speed_ratio)
    # What exceeds the clean step is divided among operators and Python: neither is known better.
    work_ns = sum(record.exposed_ns for record in op_records)
    work_ns += line_times.positive().total("python")
    if data_ns is not None:
        work_ns -= _work_for_data(timeline, op_records)
    slower = min(slower, clean / max(1.0, work_ns))
    for record in op_records:
        record.ns *= slower
        record.exposed_ns *= slower
    data = slower * line_times.total("data")
    if data_ns is not None:
        # If operators make the batch, they have their own time.
        data = max(0.0, data_ns - _work_for_data(timeline, op_records))
    waits = {"data": data} | ({CPU_WAIT: cpu_wait.clean_ns} if cpu_wait else {})
    return CpuStepParts(
        op_records, slower * dispatch.costed_ns, waits, line_times, min(1.0, speed_ratio)
    )


def _without_waiting(phases: Mapping[str, float], share: float) -> dict[str, float]:
    """The phases of a step without their waits for batches, a share of the step."""
    other = phases.get("other", 0.0) - share * sum(phases.values())
    return {**phases, "other": max(0.0, other)} if share else dict(phases)


def _work_for_data(timeline: Timeline, op_records: Sequence[OpRecord]) -> float:
    """The time of operations inside a loader that makes its batches itself."""
    host = timeline.host
    loads = np.append(nearest(host.parent, host.kind == HostKind.DATA) >= 0, False)
    return sum(record.exposed_ns for record in op_records if loads[record.row])


def _waited_for_data(timeline: Timeline) -> float:
    """How long the profiled step waited for its batches."""
    host = timeline.host
    waiting = host.kind == HostKind.DATA
    begins, ends = union(host.start_ns[waiting], host.duration_ns[waiting])
    return float((ends - begins).sum())
