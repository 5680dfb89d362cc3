"""The diagnosis of a script that ran under watch."""

from __future__ import annotations

import dataclasses
import re
import statistics
import sys
from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np

from boundby.analysis.account import Attribution, attribute_step
from boundby.analysis.verdict import VerdictResult, find_verdict
from boundby.capture import kineto
from boundby.capture.torch import graph_replays as graphs
from boundby.capture.torch.compiled_rows import with_compiled_kernels
from boundby.capture.torch.enrich import enrich_timeline
from boundby.capture.torch.profiler_tree import read_profiler_tree
from boundby.capture.torch.recorder import Capture
from boundby.diagnosis.advice import Advice, Timer, advise, doubted
from boundby.diagnosis.assembly import assemble, nothing_known
from boundby.diagnosis.host import cpu_contention, host_factors, slower_than_measured, unsteady
from boundby.model import Machine, Note, Precision, Timeline, units
from boundby.model.diagnosis import Diagnosis, KindOfStep, PhaseTime, StepTimes, Verdict
from boundby.model.errors import BoundbyError
from boundby.model.host_counters import HostCounters
from boundby.step.build import build_step_model
from boundby.step.cpu_ops import ExtraPages
from boundby.step.cpu_step import CpuWait
from boundby.step.model import OperatorBenchmarks, StepModel
from boundby.step.simulator import explaining_host, issue_ns, with_host

# Clean steps that differ by more than this are not one kind of step on a quiet machine.
_UNEVEN = 1.5
# A profiled step is never faster than a clean one, unless those were disturbed.
_FASTER_PROFILED = 0.8
# A script that waits this much of its time for a core was not alone on the machine.
_STARVED = 0.15
# Of a virtual machine's core time, what others may take before it is worth a word.
_STOLEN = 0.05
# Work that has to be scaled down by more than this was not the clean step's.
_SCALED = 1.2
_SAMPLES = re.compile(r"^\w+ (\d+)(?:x\d+)+")
_NO_STEP = (
    "no step was found: boundby looks for optimizer steps and, in a script without any, for "
    "repeated calls of an outermost module or compiled function, or else for backward passes "
    "(seen: {seen}); mark the end of a step in the script with boundby.step()"
)

_NO_VERDICT = Verdict(bound_by="unknown", uncertain=True, why="No step was profiled.")


def require_steps(capture: Capture) -> str:
    """The kind of step to diagnose; an explanation where none was found."""
    if capture.main_kind is None:
        seen = ", ".join(f"{count} {what}" for what, count in capture.seen.items())
        words = _NO_STEP.format(seen=seen)
        if capture.seen.get("calls") and not capture.seen.get("optimizer steps"):
            words += ", or take every call of the model for one: --step-by forward"
        if capture.started:
            others = " or ".join(f"boundby run {command}" for command in capture.started)
            words = f"{words}; the script ran others: if the steps are there, {others}"
        raise BoundbyError(words)
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
    notes = list(capture.notes)
    if kind in capture.clean:
        notes += _uneven(samples) + _stolen(capture.host_counters)
    else:
        text = "no clean step was measured: the time is that of warm-up steps"
        notes.append(Note(code="no-clean-steps", text=text))
    profiled = _profiled_step(capture, wall_ns)
    timeline = profiled.timeline if profiled else None
    if profiled is None:
        seen = _Seen(attribution=nothing_known(wall_ns))
        text = "no profile: only the step's time is known, not where it went"
        notes.append(Note(code="no-profile", text=text))
    else:
        seen = _look_into(profiled, capture, machine, wall_ns, timer)
        notes += seen.notes
        notes += unsteady(capture) if len(profiled.timeline.device) else []
        notes += profiled.timeline.notes
    return assemble(
        seen.attribution,
        timeline,
        target=target,
        machine=machine,
        step=_step_times(capture, kind, samples, seen, profiled),
        precision=_precision(capture, timeline),
        verdict=seen.verdict_result.verdict if seen.verdict_result else _NO_VERDICT,
        advice=seen.advice,
        notes=notes,
        run=capture.run,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a profiled step gave; without one, the account of a step of which nothing is known."""

    attribution: Attribution
    verdict_result: VerdictResult | None = None
    advice: Advice = dataclasses.field(default_factory=Advice)
    notes: Sequence[Note] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Profiled:
    """The step that was looked into, beside the clean ones."""

    timeline: Timeline
    clean_ns: float
    cpu_wait_ns: float  # that it stood ready without a core
    fresh_pages: ExtraPages

    @property
    def dilation(self) -> float | None:
        return self.timeline.wall_ns / self.clean_ns if self.clean_ns else None


def _look_into(
    profiled: _Profiled, capture: Capture, machine: Machine, wall_ns: float, timer: Timer | None
) -> _Seen:
    """The profiled step's account, verdict and advice, with doubt where it stands for no other."""
    timeline = profiled.timeline
    seen = capture.host_counters
    waiting, loading = seen.data_share, seen.loading_share
    lost_ns = seen.cpu_wait_share * wall_ns
    cpu_wait = None
    if seen.main is not None:
        # While it makes batches itself, it may stand without a core as well.
        cpu_wait = CpuWait(clean_ns=lost_ns, profiled_ns=profiled.cpu_wait_ns * (1 - loading))
    attribution = attribute_step(
        timeline,
        machine,
        wall_ns=wall_ns,
        phases=capture.phases,
        data_ns=None if waiting is None else waiting * wall_ns - loading * lost_ns,
        cpu_wait=cpu_wait,
        fresh_pages=profiled.fresh_pages,
        precision=_precision(capture, timeline),
        folders=[*sys.path, ""],
    )
    step_models = _pictures(capture, timeline, machine, attribution, wall_ns)
    verdict_result = find_verdict(step_models[0])
    advice = advise(step_models[1:] or step_models, timer)
    doubts = _doubts(profiled, attribution, capture.host_counters)
    if doubts:
        verdict = verdict_result.verdict
        why = f"{verdict.why} But {doubts[0].text}."
        verdict = msgspec.structs.replace(verdict, uncertain=True, why=why)
        verdict_result = dataclasses.replace(verdict_result, verdict=verdict)
        advice = doubted(advice, wall_ns)
    return _Seen(
        attribution=attribution, verdict_result=verdict_result, advice=advice, notes=doubts[1:]
    )


def _precision(capture: Capture, timeline: Timeline | None) -> Precision:
    """In what the device that the step ran on may compute float32 products."""
    on_device = capture.cuda_index is not None if timeline is None else len(timeline.device) > 0
    allowed = capture.settings.get("float32", {}).get("cuda" if on_device else "cpu", {})
    return Precision(**allowed)


def _step_times(
    capture: Capture, kind: str, samples: Sequence[float], seen: _Seen, profiled: _Profiled | None
) -> StepTimes:
    return StepTimes(
        kind=kind,
        wall_ns=statistics.median(samples),
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
        device_busy_ns=seen.attribution.device_busy_ns,
        kernels=seen.attribution.kernels,
        dilation=profiled.dilation if profiled else None,
        replay_error=seen.verdict_result.replay_error if seen.verdict_result else None,
        inferred_share=seen.attribution.inferred_share,
        others=_other_kinds(capture, kind),
    )


def _pictures(
    capture: Capture, timeline: Timeline, machine: Machine, attribution: Attribution, wall_ns: float
) -> list[StepModel]:
    """The step as measured; then, to imagine changes in, with the likeliest host and its range.

    What the first picture says of the step as it is stays free of what a host may come to be.
    """
    timings = OperatorBenchmarks()
    # Not the sum of what each phase usually takes: a host that is disturbed now and then is so in
    # one phase or another, in most of the steps.
    steps = [sum(phases.values()) for phases in capture.issue]
    slower = slower_than_measured(capture, machine)
    crowded = cpu_contention(attribution, capture.host_counters, wall_ns)

    def step_model(factor: float) -> StepModel:
        return build_step_model(
            timeline,
            machine.with_host_slowdown(slower * factor * crowded),
            attribution,
            wall_ns=wall_ns,
            phases=capture.phases,
            host=partial(with_host, factor=factor),
            timings=timings,
            host_counters=capture.host_counters,
            in_phases_ns=statistics.median(steps) if steps else None,
            cpu_contention=crowded,
            samples=_samples_in(capture.main_kind or ""),
        )

    measured = step_model(1.0)
    if measured.device == "cpu":
        return [measured]
    factors = host_factors(
        capture,
        wall_ns=wall_ns,
        issued_ns=issue_ns(measured.launches),
        explaining=explaining_host(measured.launches, wall_ns),
    )
    return [measured, *map(step_model, factors)]


def _samples_in(kind: str) -> int | None:
    """How many samples a step of this kind takes, by the first tensor that its model is given."""
    found = _SAMPLES.search(kind)
    return int(found.group(1)) if found else None


def _doubts(
    profiled: _Profiled, attribution: Attribution, host_counters: HostCounters
) -> list[Note]:
    """Why the profiled step cannot stand for the clean ones, the likeliest reason first."""
    found = []
    cpu_wait = host_counters.cpu_wait_share
    clean_ns, own_ns = profiled.clean_ns, float(profiled.timeline.wall_ns)
    if not len(profiled.timeline.device):
        # Without waiting for cores, of which the profiled step may have had more than the others.
        clean_ns, own_ns = clean_ns * (1 - cpu_wait), own_ns - profiled.cpu_wait_ns
    if cpu_wait > _STARVED:
        # What has run for as long as the script stood there may have had its core.
        workers = host_counters.worker_cpu_share >= cpu_wait
        who = "processes that it started (DataLoader workers?)" if workers else ""
        text = (
            f"the script waited for a CPU core for {cpu_wait:.0%} of the clean steps, because "
            f"{who or 'another program or its own threads'} used the cores"
        )
        found.append(Note(code="cpu-contention", text=text))
    if own_ns < _FASTER_PROFILED * clean_ns:
        times = clean_ns / max(own_ns, 1.0)
        apart = "apart from waiting for a core, " if found else ""
        text = (
            f"{apart}clean steps took {times:.1f} times as long as the profiled one, although that "
            "includes the profiler; something else may have used the machine, and the difference "
            "counts as overhead"
        )
        found.append(Note(code="slow-clean-steps", text=text))
    elif attribution.scaled < 1 / _SCALED:
        # On a starved machine nothing may be left of the step beside its waits.
        more = 1 / max(attribution.scaled, 0.01) - 1
        text = (
            f"the work of the profiled step took {more:.0%} longer than a whole clean step, "
            "without the profiler's cost: all of it is scaled down to fit"
        )
        found.append(Note(code="scaled-to-fit", text=text))
    return found


def _uneven(samples: Sequence[float]) -> list[Note]:
    """A note when clean steps differ so much that something else must be going on."""
    low, high = (float(x) for x in np.percentile(samples, [10, 90]))
    if high < _UNEVEN * low:
        return []
    text = (
        f"clean steps took from {units.time(low)} to {units.time(high)}, "
        f"{units.time(statistics.mean(samples))} on average: does the work vary, or is something "
        "else running on this machine?"
    )
    return [Note(code="uneven-steps", text=text)]


def _stolen(host_counters: HostCounters) -> list[Note]:
    """A note where other virtual machines used a part of this one's cores."""
    share = host_counters.steal_share or 0.0
    if share < _STOLEN:
        return []
    text = (
        f"other virtual machines on the same hardware took {share:.0%} of the core time that this "
        "one asked for: time bound by the host is longer by that, and varies with it"
    )
    return [Note(code="busy-machine", text=text)]


def interval_of_median(samples: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95% confidence, by order statistics: no shape is assumed."""
    ordered = np.sort(np.asarray(samples, float))
    count = len(ordered)
    reach = 0.98 * count**0.5  # 1.96 standard deviations of a binomial with p = 1/2
    low = max(0, int(np.floor(count / 2 - reach)))
    high = min(count - 1, int(np.ceil(count / 2 + reach)) - 1)
    return float(ordered[low]), float(ordered[max(low, high)])


def _profiled_step(capture: Capture, wall_ns: float) -> _Profiled | None:
    """The profiled step of the main kind that is most like the clean ones, by how long it took."""
    if capture.trace is None or not capture.profiled_steps:
        return None
    trace = kineto.read(capture.trace)
    wanted = [index for index in capture.profiled_steps if index < len(trace.steps)]
    if not wanted:
        return None
    index = min(wanted, key=lambda index: abs(trace.steps[index].wall_ns - wall_ns))
    timeline = trace.timeline(index)
    if capture.results is not None:
        timeline = enrich_timeline(
            with_compiled_kernels(timeline, capture.compiled),
            read_profiler_tree(capture.results, capture.line_trace),
            capture.kernel_lines,
            compiled=capture.compiled,
            samples=capture.samples,
            call_cost=capture.call_cost,
        )
    if capture.graphs:
        timeline = _with_captured(timeline, capture, index)
    cpu_wait = capture.cpu_wait[index] if index < len(capture.cpu_wait) else 0.0
    return _Profiled(
        timeline=timeline,
        clean_ns=wall_ns,
        cpu_wait_ns=cpu_wait,
        fresh_pages=_fresh_pages(capture, index),
    )


def _fresh_pages(capture: Capture, index: int) -> ExtraPages:
    """What a profiled step was handed more than clean ones."""
    seen, more = capture.host_counters, 0.0
    if seen.steps_ns and index < len(capture.fresh_pages):
        more = max(0.0, capture.fresh_pages[index] - seen.fresh_pages / len(seen.steps_ns))
    return ExtraPages(count=more, each_ns=seen.fresh_page_ns)


def _with_captured(timeline: Timeline, capture: Capture, index: int) -> Timeline:
    """With the operators of the graphs that the step replays, as they were when captured."""
    replayed = capture.replays[index] if index < len(capture.replays) else None
    wanted = set(replayed) if replayed is not None else set(capture.graphs)
    recordings = {
        number: recording
        for number, path in capture.graphs.items()
        if number in wanted and (recording := graphs.read(path)) is not None
    }
    return graphs.attach_operators(timeline, recordings, replayed, capture.kernel_lines)


def _other_kinds(capture: Capture, main: str) -> list[KindOfStep]:
    """The kinds of steps seen besides, with their times.

    The script's first step, compiled and set up in, tells little of how long its kind takes: it
    counts where it is the only one, as a prefill may be.
    """
    seen: dict[str, list[float]] = {}
    for kinds in (capture.warmup, capture.clean):
        for kind, times in kinds.items():
            seen.setdefault(kind, []).extend(times)
    first = next(iter(capture.warmup), None)
    return [
        KindOfStep(
            kind=kind,
            steps=len(times),
            wall_ns=statistics.median((times[1:] or times) if kind == first else times),
        )
        for kind, times in seen.items()
        if kind != main
    ]
