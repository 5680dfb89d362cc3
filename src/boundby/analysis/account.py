"""Divides the whole step time: `attribute_step` turns a timeline and a machine into an account."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boundby.analysis import tables
from boundby.analysis.kernel_classes import (
    classified_share,
    costed_share,
    kernel_class_rows,
    products_are_costed,
)
from boundby.model import UNKNOWN_PRECISION, Ints, Machine, Note, Precision, Timeline
from boundby.model.account import Account, Group, Utilisation
from boundby.model.assumptions.verdict import DILATED
from boundby.model.intervals import union
from boundby.model.observation import SourceLine
from boundby.model.rows import ClassRow, CollectiveRow, IdleRow, KernelClassRow, LineRow, OpRow
from boundby.step.cpu_ops import ExtraPages
from boundby.step.cpu_step import CpuWait, cpu_step_parts
from boundby.step.device_ops import device_work, recomputed_flops
from boundby.step.host_intervals import HostIntervals, find_host_intervals, intervals_at
from boundby.step.host_time import LineTimes, idle_time_by_line
from boundby.step.idle_causes import CPU_WAIT, LABELS, gap_causes, idle_rows
from boundby.step.op_record import OpRecord
from boundby.step.simulator import (
    LaunchSequence,
    build_launch_sequence,
    simulated_timeline,
    with_clean_phases,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """An account and the tables that go with it."""

    account: Account
    utilisation: Utilisation
    classes: list[ClassRow]
    kernel_classes: list[KernelClassRow]
    ops: list[OpRow]
    lines: list[LineRow]
    modules: list[LineRow]
    collectives: list[CollectiveRow]
    idle: list[IdleRow]
    device_busy_ns: float | None
    kernels: int
    inferred_share: float
    scaled: float  # the factor by which the profiled work was scaled down to fit the clean step
    op_records: list[OpRecord]
    member: Ints  # the op record of each device event
    where: HostIntervals
    notes: list[Note]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepParts:
    """The operators and the idle time of a step, before they are fitted to its wall time.

    `idle` is by cause, `idle_lines` by source line. `dispatch_ns` is CPU time to call operators.
    `member` and `scaled` are those of `Attribution`.
    """

    op_records: list[OpRecord]
    member: Ints
    idle: dict[str, float]
    idle_lines: LineTimes
    idle_rows: list[IdleRow]
    dispatch_ns: float = 0.0
    scaled: float = 1.0


def attribute_step(
    timeline: Timeline,
    machine: Machine,
    *,
    wall_ns: float,
    phases: Mapping[str, float] | None = None,
    launches: LaunchSequence | None = None,
    where: HostIntervals | None = None,
    data_ns: float | None = None,
    cpu_wait: CpuWait | None = None,
    fresh_pages: ExtraPages | None = None,
    slow_ns: float | None = None,
    precision: Precision = UNKNOWN_PRECISION,
    lines: Mapping[str, SourceLine] | None = None,
) -> Attribution:
    """Divide a step's clean wall time among compute, bandwidth, overhead and the unknown.

    Kernel time is taken as measured. The rest of the wall is idle time. It is divided in the
    proportions of the idle times of the step replayed with the clean host times `phases`; without
    those, with the estimated host times `launches`; without either, of the profiled step.

    `where`: the lines of the host's time, if already known. `data_ns`: how long a clean step waits
    for its batches, if measured; the profiled step may find its batch ready, because workers
    continue while a profiler starts and stops. `cpu_wait`: on a CPU, waiting for a core; None if
    unknown. `fresh_pages`: on a CPU, memory pages that only the profiled step was given. `slow_ns`:
    the time that few clean steps exceed.
    `precision`: the formats allowed for float32 products. `lines`: the text of source lines.
    """
    where = where or find_host_intervals(timeline)
    on_device = len(timeline.device) > 0
    if on_device:
        parts = _device_parts(timeline, machine, precision, where, phases=phases, launches=launches)
    else:
        parts = _cpu_parts(
            timeline,
            machine,
            precision,
            where,
            wall_ns=wall_ns,
            phases=phases or {},
            data_ns=data_ns,
            cpu_wait=cpu_wait,
            fresh_pages=fresh_pages,
            slow_ns=slow_ns,
        )
    op_records = parts.op_records
    busy = sum(record.exposed_ns for record in op_records)
    factor, notes = _fit_to_wall(parts, busy, wall_ns, timeline)
    busy *= factor
    idle_ns = max(0.0, wall_ns - busy)  # rounding
    idle = _divide(idle_ns, parts.idle) if on_device else _divide_cpu(idle_ns, parts.idle)
    account = _account(op_records, idle, wall_ns)
    kernel_classes = kernel_class_rows(timeline, op_records, parts.member)
    return Attribution(
        account=account,
        utilisation=_utilisation(
            op_records, kernel_classes, timeline, machine, wall_ns, busy if on_device else None
        ),
        classes=tables.class_rows(op_records),
        kernel_classes=kernel_classes,
        ops=tables.op_rows(op_records, timeline, machine),
        lines=tables.line_rows(
            op_records, parts.idle_lines.scaled(_on_lines(idle)), timeline, wall_ns, lines or {}
        ),
        modules=tables.module_rows(op_records, timeline, wall_ns),
        collectives=tables.collective_rows(op_records),
        idle=parts.idle_rows,
        device_busy_ns=busy if on_device else None,
        kernels=len(timeline.device),
        inferred_share=idle_ns / wall_ns if timeline.wall_ns > DILATED.value * wall_ns else 0.0,
        scaled=parts.scaled * factor,
        op_records=op_records,
        member=parts.member,
        where=where,
        notes=notes,
    )


def _device_parts(
    timeline: Timeline,
    machine: Machine,
    precision: Precision,
    where: HostIntervals,
    *,
    phases: Mapping[str, float] | None,
    launches: LaunchSequence | None,
) -> _StepParts:
    """The kernels of a step, and its idle time at the host speed of clean steps."""
    op_records, member = device_work(timeline, machine, precision)
    clean = timeline
    # An XLA profile of a CPU does not say which call issued which work: nothing to replay.
    is_linked = bool((timeline.device.launch >= 0).any())
    if phases and is_linked:
        clean = _clean_speed(timeline, machine, phases)
    elif launches is not None and is_linked:
        clean = simulated_timeline(timeline, launches)
    busy_times = union(clean.device.start_ns, clean.device.duration_ns)
    gaps = gap_causes(clean, *busy_times)
    return _StepParts(
        op_records=op_records,
        member=member,
        idle={label: float(amount.sum()) for label, amount in gaps.parts.items()},
        idle_lines=idle_time_by_line(clean, intervals_at(where, timeline, clean), gaps),
        idle_rows=idle_rows(clean, *busy_times),
    )


def _cpu_parts(
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
    slow_ns: float | None,
) -> _StepParts:
    """The operators of a step on a CPU and its waits, at the speed of clean steps."""
    step = cpu_step_parts(
        timeline,
        machine,
        precision,
        where,
        wall_ns=wall_ns,
        phases=phases,
        data_ns=data_ns,
        cpu_wait=cpu_wait,
        fresh_pages=fresh_pages,
        slow_ns=slow_ns,
    )
    return _StepParts(
        op_records=step.op_records,
        member=np.empty(0, np.int64),
        idle=step.waits,
        idle_lines=step.line_times,
        idle_rows=[],
        dispatch_ns=step.dispatch_ns,
        scaled=step.scaled,
    )


def _on_lines(idle: Mapping[str, float]) -> dict[str, float]:
    """Idle time without waiting for a CPU core, which belongs to no line."""
    return {label: ns for label, ns in idle.items() if label != CPU_WAIT}


def _fit_to_wall(
    parts: _StepParts, busy: float, wall_ns: float, timeline: Timeline
) -> tuple[float, list[Note]]:
    """Scale down operators that add up to more than the step time; return the factor and a note."""
    if busy + parts.dispatch_ns <= wall_ns:
        return 1.0, []
    factor = wall_ns / (busy + parts.dispatch_ns)
    return factor, [_scale_down(parts.op_records, factor, timeline)]


def _scale_down(op_records: Sequence[OpRecord], factor: float, timeline: Timeline) -> Note:
    """Scale the operators' times by a factor; return a note about it."""
    on_device = len(timeline.device) > 0
    for record in op_records:
        record.exposed_ns *= factor
        # On a CPU everything in a profiled step is slower than in a clean one, operators too.
        record.ns *= 1.0 if on_device else factor
    several = not on_device and len(np.unique(timeline.host.thread)) > 1
    reason = "on several threads " if several else ""
    return Note(
        code="work-exceeds-step",
        text=f"the operators of the profiled step {reason}add up to {1 / factor - 1:.1%} more than "
        "the step time: they are scaled down to match",
    )


def _clean_speed(timeline: Timeline, machine: Machine, phases: Mapping[str, float]) -> Timeline:
    """The step replayed without the profiler's overhead, which delays the host."""
    launches = build_launch_sequence(
        timeline, gap_ns=machine.overheads.gap_ns(timeline.device.duration_ns)
    )
    return simulated_timeline(timeline, with_clean_phases(launches, dict(phases)))


def _divide(left: float, idle: dict[str, float]) -> dict[str, float]:
    """Divide `left` in the proportions of the replayed step's idle time."""
    total = sum(idle.values())
    if not total:
        return {"python": left}
    return {label: left * amount / total for label, amount in idle.items()}


def _divide_cpu(left: float, idle: dict[str, float]) -> dict[str, float]:
    """Divide `left` on a CPU: waits are measured, the rest is Python."""
    data = min(left, idle["data"])
    parts = {"data": data}
    if CPU_WAIT in idle:
        parts[CPU_WAIT] = min(left - data, idle[CPU_WAIT])
    return {"python": left - sum(parts.values())} | parts


def _account(op_records: list[OpRecord], idle: dict[str, float], wall_ns: float) -> Account:
    ns: dict[str, float] = defaultdict(float)
    excess: dict[str, float] = defaultdict(float)
    parts: dict[str, dict[str, float]] = {
        "bandwidth": {"device_memory": 0.0, "host_link": 0.0, "network": 0.0},
        "overhead": dict.fromkeys(LABELS, 0.0) | idle | {"small_kernels": 0.0},
    }
    for record in op_records:
        name, part = tables.group_of(record)
        ns[name] += record.exposed_ns
        if part is not None:
            parts[name][part] += record.exposed_ns
        if record.floor_ns is not None and record.ns:
            excess[name] += record.exposed_ns * max(0.0, 1 - record.floor_ns / record.ns)
    ns["overhead"] += sum(idle.values())

    def group(name: str, *, with_excess: bool) -> Group:
        return Group(
            ns=ns[name],
            share=ns[name] / wall_ns if wall_ns else 0.0,
            excess_ns=excess[name] if with_excess else None,
            parts=parts.get(name, {}),
        )

    return Account(
        compute=group("compute", with_excess=True),
        bandwidth=group("bandwidth", with_excess=True),
        overhead=group("overhead", with_excess=False),
        unknown=group("unknown", with_excess=False),
    )


def _utilisation(
    op_records: list[OpRecord],
    kernel_classes: list[KernelClassRow],
    timeline: Timeline,
    machine: Machine,
    wall_ns: float,
    busy_ns: float | None,
) -> Utilisation:
    units = tables.total_matrix_flops(op_records)
    total = sum(units.values())
    recomputed = recomputed_flops(op_records, timeline)
    useful = (total - recomputed) / total if total else None
    hfu = _ideal_ns(units, {unit: rate for unit in units if (rate := machine.reach(unit))}, wall_ns)
    sheet = {roof.name: roof.datasheet for roof in machine.roofs if roof.datasheet}
    hfu_sheet = _ideal_ns(units, sheet, wall_ns)
    moved_bytes = sum(
        record.cost.bytes for record in op_records if record.cost and record.bound != "host_link"
    )
    memory = machine.rate("memory.dram")
    return Utilisation(
        mfu=hfu * useful if hfu is not None and useful is not None else None,
        hfu=hfu,
        mfu_datasheet=hfu_sheet * useful if hfu_sheet is not None and useful is not None else None,
        hfu_datasheet=hfu_sheet,
        bandwidth=moved_bytes / memory * 1e9 / wall_ns if memory and wall_ns else None,
        device=busy_ns / wall_ns if busy_ns is not None and wall_ns else None,
        host_lead_ns=_host_lead(timeline),
        at_least=not products_are_costed(kernel_classes),
        costed=costed_share(kernel_classes),
        classified=classified_share(kernel_classes),
    )


def _ideal_ns(units: dict[str, float], rates: dict[str, float], wall_ns: float) -> float | None:
    """The share of the wall that matrix products would take at these rates."""
    if not units or not wall_ns or any(unit not in rates for unit in units):
        return None
    return sum(amount / rates[unit] * 1e9 for unit, amount in units.items()) / wall_ns


def _host_lead(timeline: Timeline) -> float | None:
    """Median time from the end of a launch to its kernel; near zero if the host limits the step."""
    device, host = timeline.device, timeline.host
    has_launch = device.launch >= 0
    if not has_launch.any():
        return None
    issued = (host.start_ns + host.duration_ns)[device.launch[has_launch]]
    return float(np.median(device.start_ns[has_launch] - issued))
