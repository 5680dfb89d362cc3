"""The conductor: what was captured, and the machine, into a diagnosis."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np

from boundby import remedies, units
from boundby.account import Accounted, account_for
from boundby.capture import kineto
from boundby.capture.live.recorder import Capture
from boundby.capture.live.refine import details, refine
from boundby.errors import BoundbyError
from boundby.model import Machine, Timeline
from boundby.model.diagnosis import (
    Account,
    BatchRow,
    ChipRow,
    Diagnosis,
    Finding,
    Group,
    GroupName,
    KindOfStep,
    PhaseTime,
    StepTimes,
    Utilisation,
    Verdict,
    WhatIf,
)
from boundby.picture import Picture, Timings
from boundby.remedies.at_the_roof import bigger_chips
from boundby.replay import Script, issue_ns, with_host, with_wall
from boundby.roofs.operators import Exercise
from boundby.roofs.paper import from_datasheet
from boundby.slices import slices_of
from boundby.verdict import Judged, judge

# Clean steps that differ by more than this are not one kind of step on a quiet machine.
_UNEVEN = 1.5
# A profiled step is never faster than a clean one, unless those were disturbed.
_FASTER_PROFILED = 0.8
# Work that has to be scaled down by more than this was not the clean step's.
_SCALED = 1.2
# Of a trace's host times, how much may be the host's own: half in the middle, from hardly any of it
# to all. The profilers of our own traces made steps 1.2 to 8 times as long.
_HOST_FACTORS = (0.5, 0.1, 1.0)
_NO_STEP = (
    "no step was found: boundby looks for optimizer steps and, in a script without any, for "
    "repeated calls of an outermost module or compiled function (seen: {seen}); mark the end of "
    "a step in the script with boundby.step()"
)

# The host's time for one script differs by this much between processes: interleaved runs of
# host-bound steps on an H200 spread by 15 to 20% around their middle.
_PROCESSES_DIFFER = 0.20
_MOST_SPREAD = 0.40

Timer = Callable[[Sequence[Exercise]], dict[Exercise, float]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What would fix a step, alone and together, and what a larger batch would take."""

    findings: list[Finding] = dataclasses.field(default_factory=list)
    what_if: list[WhatIf] = dataclasses.field(default_factory=list)
    batches: list[BatchRow] = dataclasses.field(default_factory=list)
    bigger_chips: list[ChipRow] = dataclasses.field(default_factory=list)


_NO_VERDICT = Verdict(bound_by="unknown", uncertain=True, why="nothing was profiled")


def require_steps(capture: Capture) -> str:
    """The kind of step to diagnose; an explanation where none was found."""
    if capture.main_kind is None:
        seen = ", ".join(f"{count} {what}" for what, count in capture.seen.items())
        raise BoundbyError(_NO_STEP.format(seen=seen))
    return capture.main_kind


def diagnose_capture(
    capture: Capture, machine: Machine, *, target: str | None, timer: Timer | None = None
) -> Diagnosis:
    """The diagnosis of a script that ran under watch.

    `timer` times single operators on the device the script ran on; without it, imagined kernels
    take what the machine's roofs and curves promise.
    """
    kind = require_steps(capture)
    samples = capture.clean.get(kind) or capture.warmup[kind][1:] or capture.warmup[kind]
    wall_ns = statistics.median(samples)
    warnings = list(capture.warnings) + _uneven(samples)
    if kind not in capture.clean:
        warnings.append("no clean step was measured: the time is that of warm-up steps")
    timeline, dilation = _profiled_step(capture, wall_ns)
    judged, advice = None, Advice()
    if timeline is None:
        accounted = _nothing_known(wall_ns)
        warnings.append("no profile: only the step's time is known, not where it went")
    else:
        tf32 = bool(capture.settings.get("tf32"))
        accounted = account_for(
            timeline, machine, wall_ns=wall_ns, tf32=tf32, folders=[*sys.path, ""]
        )
        pictures = _pictures(capture, timeline, machine, accounted, wall_ns)
        judged = judge(pictures[0])
        advice = _advise(pictures[1:] or pictures, timer)
        doubt = _doubt(dilation, accounted)
        if doubt:
            verdict = judged.verdict
            words = f"{doubt}; {verdict.why}"
            verdict = msgspec.structs.replace(verdict, uncertain=True, why=words)
            judged = dataclasses.replace(judged, verdict=verdict)
        warnings += [line for line in timeline.warnings if "a CPU trace" not in line]
    step = StepTimes(
        kind=kind,
        wall_ns=wall_ns,
        wall_source="clean" if kind in capture.clean else "warm-up",
        wall_interval_ns=interval_of_median(samples),
        samples_ns=list(samples),
        phases=[
            PhaseTime(
                name=name,
                host_issue_ns=ns,
                samples_ns=[step.get(name, 0.0) for step in capture.issue],
            )
            for name, ns in capture.phases.items()
        ],
        device_busy_ns=accounted.device_busy_ns,
        kernels=accounted.kernels,
        dilation=dilation,
        replay_error=judged.replay_error if judged else None,
        inferred_share=accounted.inferred_share,
        others=_other_kinds(capture, kind),
    )
    return _diagnosis(
        accounted,
        timeline,
        target=target,
        machine=machine,
        step=step,
        verdict=judged.verdict if judged else _NO_VERDICT,
        advice=advice,
        warnings=warnings,
    )


def _pictures(
    capture: Capture, timeline: Timeline, machine: Machine, accounted: Accounted, wall_ns: float
) -> list[Picture]:
    """The step as measured; then, to imagine changes in, with the likeliest host and its range.

    No host takes longer for a step than the step: one that was measured so was disturbed while it
    was measured. What the first picture says of the step as it is stays free of that.
    """
    timings = Timings()

    def picture(factor: float) -> Picture:
        return Picture(
            timeline,
            machine,
            accounted,
            wall_ns=wall_ns,
            phases=capture.phases,
            host=partial(with_host, factor=factor),
            timings=timings,
            circumstances=capture.circumstances,
        )

    measured = picture(1.0)
    if measured.script is None:
        return [measured]
    likely = min(1.0, wall_ns / max(issue_ns(measured.script), 1.0))
    spread = _host_spread(capture.issue)
    return [measured, *(picture(likely * part) for part in (1.0, 1 - spread, 1 + spread))]


def _host_spread(issue: Sequence[dict[str, float]]) -> float:
    """By how much the host's time varies: from step to step, and from process to process."""
    totals = [sum(step.values()) for step in issue]
    if len(totals) < 2:
        return _PROCESSES_DIFFER
    reach = (max(totals) - min(totals)) / 2 / statistics.median(totals)
    return min(_MOST_SPREAD, max(_PROCESSES_DIFFER, reach))


def _advise(pictures: Sequence[Picture], timer: Timer | None) -> Advice:
    """What would fix the step; looked at twice where the first look asks for operators' times."""
    findings = remedies.find(pictures)
    timings = pictures[0].timings
    if timer is not None and timings.asked:
        timings.known.update(timer(list(timings.asked)))
        findings = remedies.find(pictures)
    return Advice(
        findings=findings,
        what_if=remedies.combine(pictures, findings),
        batches=remedies.batches(pictures[0]),
        bigger_chips=bigger_chips(pictures[0], findings),
    )


def diagnose_trace(
    trace: kineto.Trace,
    machine: Machine | None = None,
    *,
    wall_ns: float | None = None,
    index: int | None = None,
) -> Diagnosis:
    """The diagnosis of a step in a trace file.

    The profiler's cost is in a trace's wall time and cannot be told from it, so the wall is an
    interval: from the device's busy time to what was profiled. `wall_ns`, a clean step's time
    that the user knows, pins it.
    """
    timeline = trace.timeline(index)
    if timeline.wall_ns <= 0:
        raise BoundbyError(f"{trace.path}: the step takes no time: its events have no durations")
    warnings = list(dict.fromkeys([*trace.warnings, *timeline.warnings]))
    if not timeline.calls and len(timeline.host):
        warnings.append(
            "operators carry no shapes: record them with profile(record_shapes=True) to know what "
            "their time should be"
        )
    if machine is None:
        machine = _machine_of(trace, warnings)
    profiled = float(timeline.wall_ns)
    accounted = account_for(timeline, machine, wall_ns=wall_ns or profiled)
    picture = Picture(timeline, machine, accounted, wall_ns=wall_ns or profiled, phases={})
    judged = judge(picture)
    shortest = judged.free_host_ns
    if judged.verdict.uncertain and accounted.device_busy_ns:
        # A replay that does not explain the step cannot bound it: the device's busy time does.
        shortest = accounted.device_busy_ns
    interval = (wall_ns, wall_ns) if wall_ns else (min(shortest, profiled), profiled)
    walls = [float(step.wall_ns) for step in trace.steps]
    if picture.script is not None and (waits := int((picture.script.depends >= 0).sum())):
        warnings.append(
            f"the trace names no events between streams: {waits} waits are taken from the observed "
            "order"
        )
    step = StepTimes(
        kind=timeline.label or "traced",
        wall_ns=wall_ns or profiled,
        wall_source="clean" if wall_ns else "profiled",
        wall_interval_ns=interval,
        samples_ns=walls,
        device_busy_ns=accounted.device_busy_ns,
        kernels=accounted.kernels,
        dilation=profiled / wall_ns if wall_ns else None,
        replay_error=judged.replay_error if wall_ns is None else None,
        inferred_share=accounted.inferred_share,
    )
    verdict = judged.verdict
    if accounted.device_busy_ns:
        verdict = _for_traces(judged, accounted, pinned=wall_ns)
    return _diagnosis(
        accounted,
        timeline,
        target=str(trace.path),
        machine=machine,
        step=step,
        verdict=verdict,
        advice=_advice_for_trace(timeline, machine, accounted, wall_ns),
        warnings=warnings,
    )


def _advice_for_trace(
    timeline: Timeline, machine: Machine, accounted: Accounted, wall_ns: float | None
) -> Advice:
    """Advice for the clean step's time where it is known, else for all the trace allows."""

    def picture(host: Callable[[Script], Script]) -> Picture:
        return Picture(timeline, machine, accounted, wall_ns=wall_ns, phases={}, host=host)

    if wall_ns is not None:
        return _advise([picture(lambda script: with_wall(script, wall_ns))], None)
    return _advise([picture(partial(with_host, factor=factor)) for factor in _HOST_FACTORS], None)


def _diagnosis(
    accounted: Accounted,
    timeline: Timeline | None,
    *,
    target: str | None,
    machine: Machine,
    step: StepTimes,
    verdict: Verdict,
    advice: Advice,
    warnings: list[str],
) -> Diagnosis:
    return Diagnosis(
        target=target,
        machine=machine,
        step=step,
        account=accounted.account,
        verdict=verdict,
        utilisation=accounted.utilisation,
        classes=accounted.classes,
        ops=accounted.ops,
        lines=accounted.lines,
        modules=accounted.modules,
        collectives=accounted.collectives,
        idle=accounted.idle,
        timeline=slices_of(timeline, accounted) if timeline is not None else [],
        findings=advice.findings,
        what_if=advice.what_if,
        batches=advice.batches,
        bigger_chips=advice.bigger_chips,
        warnings=warnings + accounted.warnings,
    )


def _machine_of(trace: kineto.Trace, warnings: list[str]) -> Machine:
    """The machine a trace names, from the datasheet table; one without roofs where it is not."""
    listed = next((device for device in trace.metadata.devices if device.name), None)
    if listed is None or listed.name is None:
        warnings.append("the trace does not name its device: no roofs; --machine FILE brings them")
        return Machine(device="unknown device", kind="cpu")
    machine = from_datasheet(listed.name, listed.memory_bytes)
    if machine is None:
        warnings.append(
            f"{listed.name} is not in the datasheet table: no roofs; --machine FILE brings them"
        )
        return Machine(device=listed.name, kind="cuda", memory_bytes=listed.memory_bytes)
    return machine


def _for_traces(judged: Judged, accounted: Accounted, *, pinned: float | None) -> Verdict:
    """The verdict of a trace, whose host times hold the profiler's cost.

    With a clean wall given, idle time is known and the host's share follows; without one, it is
    said whether the verdict also holds for the shortest step the trace allows, with a free host.
    """
    groups = accounted.account.groups()
    if pinned is not None:
        gain = pinned / min(pinned, judged.free_host_ns)
        if gain > max(judged.verdict.if_free[group] for group in ("compute", "bandwidth")):
            words = f"with a host that costs nothing the step would run {gain:.2f}x as fast"
            free = judged.verdict.if_free | {"overhead": gain}
            return Verdict(bound_by="overhead", if_free=free, why=words)
    work = {
        name: group.ns if name != "overhead" else group.parts.get("small_kernels", 0.0)
        for name, group in groups.items()
    }
    shortest: GroupName = max(groups, key=lambda name: work[name])
    share = work[shortest] / max(sum(work.values()), 1.0)
    if pinned is not None:
        words = f"the device is the limit, and {share:.0%} of its time is {shortest}"
        return msgspec.structs.replace(judged.verdict, bound_by=shortest, why=words)
    verdict = judged.verdict
    if shortest == verdict.bound_by:
        words = f"{verdict.why}; it holds however much the profiler slowed the step"
        return msgspec.structs.replace(verdict, why=words)
    words = (
        f"{verdict.why}, as profiled; were all idle time the profiler's doing, it would be "
        f"{shortest} ({share:.0%} of device time): --wall with a clean step's time decides"
    )
    return msgspec.structs.replace(verdict, uncertain=True, why=words)


def _doubt(dilation: float | None, accounted: Accounted) -> str | None:
    """Why the profiled step cannot stand for the clean ones; None where it can."""
    if dilation is not None and dilation < _FASTER_PROFILED:
        return (
            f"clean steps took {1 / dilation:.1f} times as long as the profiled one, which carries "
            "the profiler: something else was using the machine"
        )
    if accounted.scaled < 1 / _SCALED:
        more = 1 / accounted.scaled - 1
        return f"the profiled step's work alone takes {more:.0%} longer than a whole clean step"
    return None


def _uneven(samples: Sequence[float]) -> list[str]:
    """One line when clean steps differ so much that something else must be going on."""
    low, high = (float(x) for x in np.percentile(samples, [10, 90]))
    if high < _UNEVEN * low:
        return []
    return [
        f"clean steps took from {units.time(low)} to {units.time(high)}: does the work vary, or is "
        "something else running on this machine?"
    ]


def interval_of_median(samples: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95% confidence, by order statistics: no shape is assumed."""
    ordered = np.sort(np.asarray(samples, float))
    count = len(ordered)
    reach = 0.98 * count**0.5  # 1.96 standard deviations of a binomial with p = 1/2
    low = max(0, int(np.floor(count / 2 - reach)))
    high = min(count - 1, int(np.ceil(count / 2 + reach)) - 1)
    return float(ordered[low]), float(ordered[max(low, high)])


def _profiled_step(capture: Capture, wall_ns: float) -> tuple[Timeline | None, float | None]:
    """The median profiled step of the main kind; the first one is the profiler's own start."""
    if capture.trace is None:
        return None, None
    trace = kineto.read(capture.trace)
    wanted = [
        index
        for index, kind in enumerate(capture.profiled)
        if index > 0 and kind == capture.main_kind and index < len(trace.steps)
    ] or list(range(len(trace.steps)))[-1:]
    if not wanted:
        return None, None
    wanted.sort(key=lambda index: trace.steps[index].wall_ns)
    timeline = trace.timeline(wanted[len(wanted) // 2])
    if capture.results is not None:
        timeline = refine(timeline, details(capture.results), capture.kernel_lines)
    return timeline, timeline.wall_ns / wall_ns if wall_ns else None


def _other_kinds(capture: Capture, main: str) -> list[KindOfStep]:
    seen: dict[str, list[float]] = {}
    for kinds in (capture.warmup, capture.clean):
        for kind, times in kinds.items():
            seen.setdefault(kind, []).extend(times)
    return [
        KindOfStep(kind=kind, steps=len(times), wall_ns=statistics.median(times))
        for kind, times in seen.items()
        if kind != main
    ]


def _nothing_known(wall_ns: float) -> Accounted:
    empty = Group()
    return Accounted(
        account=Account(
            compute=empty,
            bandwidth=empty,
            overhead=empty,
            unknown=Group(ns=wall_ns, share=1.0),
        ),
        utilisation=Utilisation(),
        classes=[],
        ops=[],
        lines=[],
        modules=[],
        collectives=[],
        idle=[],
        device_busy_ns=None,
        kernels=0,
        inferred_share=0.0,
        scaled=1.0,
        works=[],
        member=np.empty(0, np.int64),
        warnings=[],
    )
