"""Timeline + Machine -> where every microsecond of the step went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from boundby.analysis import tables
from boundby.analysis.kernel_classes import (
    classified_share,
    costed_share,
    kernel_class_rows,
    products_are_costed,
)
from boundby.model import UNTOLD, Ints, Machine, Note, Precision, Timeline
from boundby.model.account import Account, Group, Utilisation
from boundby.model.assumptions.verdict import DILATED
from boundby.model.intervals import union
from boundby.model.observation import SourceLine
from boundby.model.rows import ClassRow, CollectiveRow, IdleRow, KernelClassRow, LineRow, OpRow
from boundby.step.cpu_ops import ExtraPages
from boundby.step.cpu_step import CpuWait, cpu_step
from boundby.step.device_ops import device_work, recomputed_flops
from boundby.step.host_intervals import HostIntervals, find_host_intervals, moved
from boundby.step.host_time import idle_time_by_line
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
    scaled: float  # by what the profile's work was scaled down to fit into the clean step
    op_records: list[OpRecord]
    member: Ints  # the work that each device event belongs to
    where: HostIntervals
    notes: list[Note]


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
    precision: Precision = UNTOLD,
    lines: Mapping[str, SourceLine] | None = None,
) -> Attribution:
    """Divide a step's clean wall time among compute, bandwidth, overhead and the unknown.

    Kernel time is taken as measured. What is left of the wall is idle time, divided in the
    proportions in which the step idles when it is replayed with the host's clean times, `phases`;
    without those, with `launches`, the host's times as they are estimated; without either, in which
    the profiled step idled. `where` is what the host did when, if that is known already. `data_ns`
    is how long a clean step waits for its batches, where that was measured: while a profiler starts
    and stops, workers get ahead, and the profiled step finds its batch waiting. `cpu_wait`:
    standing ready without a core, which on a CPU is neither an operator's time nor Python's; None
    where nobody tells. `fresh_pages`: memory that the profiled step was handed, on a CPU, and clean
    ones have no need of. `precision` is what float32 products may be computed in. `lines` has the
    text of source lines.
    """
    notes: list[Note] = []
    dispatch, scaled = 0.0, 1.0
    member = np.empty(0, np.int64)
    where = where or find_host_intervals(timeline)
    causes: list[IdleRow] = []
    on_device = len(timeline.device) > 0
    if on_device:
        op_records, member = device_work(timeline, machine, precision)
        pace = timeline
        # An XLA profile of a CPU does not say which call issued which work: nothing to replay.
        is_linked = bool((timeline.device.launch >= 0).any())
        if phases and is_linked:
            pace = _clean_speed(timeline, machine, phases)
        elif launches is not None and is_linked:
            pace = simulated_timeline(timeline, launches)
        busy_times = union(pace.device.start_ns, pace.device.duration_ns)
        gaps = gap_causes(pace, *busy_times)
        idle = {label: float(amount.sum()) for label, amount in gaps.parts.items()}
        spent = idle_time_by_line(pace, moved(where, timeline, pace), gaps)
        causes = idle_rows(pace, *busy_times)
    else:
        step = cpu_step(
            timeline,
            machine,
            precision,
            where,
            wall_ns=wall_ns,
            phases=phases or {},
            data_ns=data_ns,
            cpu_wait=cpu_wait,
            fresh_pages=fresh_pages,
        )
        op_records, dispatch, spent, scaled = (
            step.op_records,
            step.dispatch_ns,
            step.spent,
            step.scaled,
        )
        idle = step.waits
    busy = sum(work.exposed_ns for work in op_records)
    if busy + dispatch > wall_ns:
        factor = wall_ns / (busy + dispatch)
        notes.append(_scale_down(op_records, factor, timeline))
        busy *= factor
        scaled *= factor
    left = wall_ns - busy
    idle = _divide(left, idle) if on_device else _divide_cpu(left, idle)
    account = _account(op_records, idle, wall_ns)
    kernel_classes = kernel_class_rows(timeline, op_records, member)
    return Attribution(
        account=account,
        utilisation=msgspec.structs.replace(
            _utilisation(op_records, timeline, machine, wall_ns, busy if on_device else None),
            at_least=not products_are_costed(kernel_classes),
            costed=costed_share(kernel_classes),
            classified=classified_share(kernel_classes),
        ),
        classes=tables.class_rows(op_records),
        kernel_classes=kernel_classes,
        ops=tables.op_rows(op_records, timeline, machine),
        lines=tables.line_rows(
            op_records, spent.scaled(_on_lines(idle)), timeline, wall_ns, lines or {}
        ),
        modules=tables.module_rows(op_records, timeline, wall_ns),
        collectives=tables.collective_rows(op_records),
        idle=causes,
        device_busy_ns=busy if on_device else None,
        kernels=len(timeline.device),
        inferred_share=left / wall_ns if timeline.wall_ns > DILATED.value * wall_ns else 0.0,
        scaled=scaled,
        op_records=op_records,
        member=member,
        where=where,
        notes=notes,
    )


def _on_lines(idle: Mapping[str, float]) -> dict[str, float]:
    """Idle time without waiting for a CPU core, which belongs to no line."""
    return {label: ns for label, ns in idle.items() if label != CPU_WAIT}


def _scale_down(op_records: Sequence[OpRecord], factor: float, timeline: Timeline) -> Note:
    """Scale operators that add up to more than the step time down to it; a note of it."""
    on_device = len(timeline.device) > 0
    for work in op_records:
        work.exposed_ns *= factor
        # On a CPU all of a profiled step is slower than a clean one, operators too.
        work.ns *= 1.0 if on_device else factor
    several = not on_device and len(np.unique(timeline.host.thread)) > 1
    reason = "on several threads " if several else ""
    return Note(
        code="work-exceeds-step",
        text=f"the operators of the profiled step {reason}add up to {1 / factor - 1:.1%} more than "
        "the step time: they are scaled down to match",
    )


def _clean_speed(timeline: Timeline, machine: Machine, phases: Mapping[str, float]) -> Timeline:
    """The step without the profiler, whose overhead delays the host."""
    script = build_launch_sequence(
        timeline, gap_ns=machine.overheads.gap_ns(timeline.device.duration_ns)
    )
    return simulated_timeline(timeline, with_clean_phases(script, dict(phases)))


def _divide(left: float, idle: dict[str, float]) -> dict[str, float]:
    """What is left of the wall, in the proportions of the replayed step's idle time."""
    total = sum(idle.values())
    if not total:
        return {"python": left}
    return {label: left * amount / total for label, amount in idle.items()}


def _divide_cpu(left: float, idle: dict[str, float]) -> dict[str, float]:
    """On a CPU waiting is seen directly; everything else that is no kernel is Python."""
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
    for work in op_records:
        name, part = tables.group_of(work)
        ns[name] += work.exposed_ns
        if part is not None:
            parts[name][part] += work.exposed_ns
        if work.floor_ns is not None and work.ns:
            excess[name] += work.exposed_ns * max(0.0, 1 - work.floor_ns / work.ns)
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
    timeline: Timeline,
    machine: Machine,
    wall_ns: float,
    busy_ns: float | None,
) -> Utilisation:
    units = tables.total_matrix_flops(op_records)
    total = sum(units.values())
    again = recomputed_flops(op_records, timeline)
    useful = (total - again) / total if total else None
    hfu = _ideal_ns(units, {unit: rate for unit in units if (rate := machine.reach(unit))}, wall_ns)
    sheet = {roof.name: roof.datasheet for roof in machine.roofs if roof.datasheet}
    hfu_sheet = _ideal_ns(units, sheet, wall_ns)
    moved = sum(work.cost.bytes for work in op_records if work.cost and work.bound != "host_link")
    memory = machine.rate("memory.dram")
    return Utilisation(
        mfu=hfu * useful if hfu is not None and useful is not None else None,
        hfu=hfu,
        mfu_datasheet=hfu_sheet * useful if hfu_sheet is not None and useful is not None else None,
        hfu_datasheet=hfu_sheet,
        bandwidth=moved / memory * 1e9 / wall_ns if memory and wall_ns else None,
        device=busy_ns / wall_ns if busy_ns is not None and wall_ns else None,
        host_lead_ns=_host_lead(timeline),
    )


def _ideal_ns(units: dict[str, float], rates: dict[str, float], wall_ns: float) -> float | None:
    """The share of the wall that the matrix arithmetic would take at full rate."""
    if not units or not wall_ns or any(unit not in rates for unit in units):
        return None
    return sum(amount / rates[unit] * 1e9 for unit, amount in units.items()) / wall_ns


def _host_lead(timeline: Timeline) -> float | None:
    """How long work waits in the queue, in the median: near launch latency, the host is behind."""
    device, host = timeline.device, timeline.host
    known = device.launch >= 0
    if not known.any():
        return None
    issued = (host.start_ns + host.duration_ns)[device.launch[known]]
    return float(np.median(device.start_ns[known] - issued))
