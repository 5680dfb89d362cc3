"""The conductor: what was captured, and the machine, into a diagnosis."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

import numpy as np

from boundby.account import Accounted, account_for
from boundby.capture import kineto
from boundby.capture.live.recorder import Capture
from boundby.capture.live.refine import details, refine
from boundby.errors import BoundbyError
from boundby.model import Machine, Timeline
from boundby.model.diagnosis import (
    Account,
    Diagnosis,
    Group,
    GroupName,
    KindOfStep,
    PhaseTime,
    StepTimes,
    Utilisation,
    Verdict,
)

# Two groups nearer than this share of the step to each other are not told apart.
_NEAR = 0.05
_NO_STEP = (
    "no step was found: boundby looks for optimizer steps and, in a script without any, for "
    "repeated calls of an outermost module or compiled function (seen: {seen}); mark the end of "
    "a step in the script with boundby.step(), or try --step-by forward"
)


def require_steps(capture: Capture) -> str:
    """The kind of step to diagnose; an explanation where none was found."""
    if capture.main_kind is None:
        seen = ", ".join(f"{count} {what}" for what, count in capture.seen.items())
        raise BoundbyError(_NO_STEP.format(seen=seen))
    return capture.main_kind


def diagnose_capture(capture: Capture, machine: Machine, *, target: str | None) -> Diagnosis:
    """The diagnosis of a script that ran under watch."""
    kind = require_steps(capture)
    samples = capture.clean.get(kind) or capture.warmup[kind][1:] or capture.warmup[kind]
    wall_ns = statistics.median(samples)
    warnings = list(capture.warnings)
    if kind not in capture.clean:
        warnings.append("no clean step was measured: the time is that of warm-up steps")
    timeline, dilation = _profiled_step(capture, wall_ns)
    if timeline is None:
        accounted = _nothing_known(wall_ns)
        warnings.append("no profile: only the step's time is known, not where it went")
    else:
        tf32 = bool(capture.settings.get("tf32"))
        accounted = account_for(
            timeline, machine, wall_ns=wall_ns, tf32=tf32, folders=[*sys.path, ""]
        )
        warnings += timeline.warnings
    return Diagnosis(
        target=target,
        machine=machine,
        step=StepTimes(
            kind=kind,
            wall_ns=wall_ns,
            wall_source="clean",
            wall_interval_ns=interval_of_median(samples),
            samples_ns=list(samples),
            phases=[PhaseTime(name=n, host_issue_ns=ns) for n, ns in capture.phases.items()],
            device_busy_ns=accounted.device_busy_ns,
            kernels=accounted.kernels,
            dilation=dilation,
            inferred_share=accounted.inferred_share,
            others=_other_kinds(capture, kind),
        ),
        account=accounted.account,
        verdict=largest_group(accounted.account),
        utilisation=accounted.utilisation,
        classes=accounted.classes,
        ops=accounted.ops,
        lines=accounted.lines,
        modules=accounted.modules,
        warnings=warnings + accounted.warnings,
    )


def largest_group(account: Account) -> Verdict:
    """Until steps are replayed, a step is bound by what most of it went into."""
    groups = account.groups()
    ranked = sorted(groups, key=lambda name: -groups[name].ns)
    first, second = ranked[0], ranked[1]
    near = groups[first].share - groups[second].share < _NEAR
    words = f"the largest part of the step, {groups[first].share:.0%}"
    if near:
        words += f", closely followed by {second} with {groups[second].share:.0%}"
    name: GroupName = first
    return Verdict(bound_by=name, uncertain=near, why=words)


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
        timeline = refine(timeline, details(capture.results))
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
        device_busy_ns=None,
        kernels=0,
        inferred_share=0.0,
        warnings=[],
    )
