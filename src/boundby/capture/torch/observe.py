"""Makes an observation of the capture of a live run. Loads numpy: never called inside a script."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from boundby.capture.kineto import read
from boundby.capture.kineto.names import clean, shortened
from boundby.capture.source_text import SourceText
from boundby.capture.torch import graph_replays
from boundby.capture.torch.capture import Capture
from boundby.capture.torch.compiled_rows import with_compiled_kernels
from boundby.capture.torch.enrich import enrich_timeline
from boundby.capture.torch.profiler_tree import read_profiler_tree
from boundby.capture.torch.shapes import step_kind
from boundby.model import Phase, Precision, Timeline
from boundby.model.diagnosis import KindOfStep
from boundby.model.evidence import StepEvidence
from boundby.model.host_counters import HostCounters
from boundby.model.observation import (
    HostSpeed,
    Observation,
    ObservedDevice,
    ProfiledStep,
    RankInfo,
    Settings,
    SourceLine,
    StepTiming,
)
from boundby.model.run import RunParts
from boundby.model.step_kind import StepKind


def observe(capture: Capture, *, target: str | None = None) -> Observation:
    """The observation: the steps of the main kind, and the profiled one that is most like them."""
    timing = _timing(capture)
    index, timeline = None, None
    if timing is not None and timing.wall_ns is not None:
        index, timeline = _profiled_step(capture, timing.wall_ns)
    cuda = capture.cuda_index
    run = capture.run
    if timing is not None and timing.kind.mode == "forward" and _takes_gradients(timeline):
        kind = msgspec.structs.replace(step_kind("train", timing.kind.shape), unit=timing.kind.unit)
        timing = msgspec.structs.replace(timing, kind=kind)
        run = _training(run) if run is not None else None
    return Observation(
        source="torch",
        framework="torch",
        target=target,
        device=ObservedDevice(
            kind="cpu" if cuda is None else "cuda",
            index=cuda,
            name=timeline.device_name if timeline is not None else None,
        ),
        step=timing,
        timeline=timeline,
        profiled=ProfiledStep() if index is None else _counted(capture, index),
        host=_host_counters(capture),
        host_speed=HostSpeed(
            addition_ns=capture.addition_ns, issue_addition_ns=capture.issue_addition_ns
        ),
        run=run,
        evidence=_evidence(capture),
        settings=_settings(capture),
        rank=None if capture.rank is None else RankInfo(rank=capture.rank, world=capture.world),
        lines={} if timeline is None else source_lines(timeline),
        notes=list(capture.notes),
        seen=capture.seen,
        started=list(capture.started),
    )


def _evidence(capture: Capture) -> StepEvidence:
    settings = msgspec.structs.replace(
        capture.evidence.settings,
        optimizers_made_at=capture.optimizers_made_at,
        trainer=capture.trainer,
    )
    return msgspec.structs.replace(capture.evidence, settings=settings)


def source_lines(timeline: Timeline) -> dict[str, SourceLine]:
    """The text of source lines with attributed work, if their files are available."""
    host, device = timeline.host, timeline.device
    columns = [host.source, host.inside, host.called, device.source]
    columns += [timeline.samples.source] if timeline.samples is not None else []
    named = np.unique(np.concatenate([column for column in columns if column is not None]))
    text = SourceText([*sys.path, ""])
    found = {timeline.sources[i]: text.at(timeline.sources[i]) for i in named if i >= 0}
    return {where: line for where, line in found.items() if line is not None}


def with_samples(kind: StepKind, kinds: Iterable[StepKind]) -> StepKind:
    """A kind of many shapes, with the batch size that most others of its mode have."""
    if kind.shape is not None or kind.samples is not None:
        return kind
    sizes = Counter(one.samples for one in kinds if one.mode == kind.mode)
    del sizes[None]
    if not sizes:
        return kind
    size, count = sizes.most_common(1)[0]
    return msgspec.structs.replace(kind, samples=size if 2 * count > sizes.total() else None)


def _timing(capture: Capture) -> StepTiming | None:
    kind = capture.main_kind
    if kind is None:
        return None
    warmup = capture.warmup.get(kind, [])
    samples = capture.clean.get(kind) or warmup[1:] or warmup
    return StepTiming(
        kind=with_samples(
            capture.kinds.get(kind) or StepKind(label=kind, series=kind), capture.kinds.values()
        ),
        wall_source="clean" if kind in capture.clean else "warm-up",
        wall_ns=statistics.median(samples),
        samples_ns=list(samples),
        phases=capture.phases,
        issue=capture.issue,
        others=_other_kinds(capture, kind),
    )


def _takes_gradients(timeline: Timeline | None) -> bool:
    """Whether the step has a backward that no hook saw: of `torch.func` or `torch.autograd.grad`,
    whose results the script applies itself."""
    return timeline is not None and bool((timeline.host.phase == Phase.BACKWARD).any())


def _training(run: RunParts) -> RunParts:
    """The run, whose forward steps are training."""
    if any(part.name == "train" for part in run.parts):
        return run
    parts = [
        msgspec.structs.replace(part, name="train") if part.name == "eval" else part
        for part in run.parts
    ]
    return msgspec.structs.replace(run, parts=parts)


def _other_kinds(capture: Capture, main: str) -> list[KindOfStep]:
    """The other kinds of steps, with their times.

    The script's first step, which includes compilation and setup, says little about the time of its
    kind: it counts only if it is the only one, as a prefill may be.
    """
    seen: dict[str, list[float]] = {}
    for kinds in (capture.warmup, capture.clean):
        for kind, times in kinds.items():
            seen.setdefault(kind, []).extend(times)
    first = next(iter(capture.warmup), None)
    return [
        KindOfStep(
            kind=kind,
            mode=known.mode if (known := capture.kinds.get(kind)) is not None else "step",
            steps=len(times),
            wall_ns=statistics.median((times[1:] or times) if kind == first else times),
        )
        for kind, times in seen.items()
        if kind != main
    ]


def _settings(capture: Capture) -> Settings:
    settings = capture.settings
    return Settings(
        float32={
            device: Precision(**allowed) for device, allowed in settings.get("float32", {}).items()
        },
        threads=settings.get("threads"),
        versions={"torch": settings["torch"]} if "torch" in settings else {},
    )


def _host_counters(capture: Capture) -> HostCounters:
    """The host counters, with files as the timeline names them."""
    counters = capture.host_counters
    places = tuple((clean(shortened(file)), line) for file, line in counters.collected_at)
    return msgspec.structs.replace(counters, collected_at=places)


def _counted(capture: Capture, index: int) -> ProfiledStep:
    pages, waits = capture.fresh_pages, capture.cpu_wait
    return ProfiledStep(
        cpu_wait_ns=waits[index] if index < len(waits) else 0.0,
        fresh_pages=pages[index] if index < len(pages) else None,
    )


def _profiled_step(capture: Capture, wall_ns: float) -> tuple[int | None, Timeline | None]:
    """The profiled step of the main kind that is most like the clean ones."""
    if capture.trace is None or not capture.profiled_steps:
        return None, None
    trace = read(capture.trace)
    wanted = [index for index in capture.profiled_steps if index < len(trace.steps)]
    if not wanted:
        return None, None
    index = most_alike(
        {index: float(trace.steps[index].wall_ns) for index in wanted},
        {index: _counted(capture, index).cpu_wait_ns for index in wanted},
        wall_ns * (1 - capture.host_counters.cpu_wait_share),
    )
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
    return index, timeline


def most_alike(walls: dict[int, float], waits: dict[int, float], own_ns: float) -> int:
    """The step whose CPU time is near that of a clean one, with little waiting for a core: waiting
    would be attributed to the operator or line that ran then."""
    return min(walls, key=lambda at: waits[at] + abs(walls[at] - waits[at] - own_ns))


def _with_captured(timeline: Timeline, capture: Capture, index: int) -> Timeline:
    """The timeline with the operators of the graphs that the step replays, as recorded at
    capture."""
    replayed = capture.replays[index] if index < len(capture.replays) else None
    wanted = set(replayed) if replayed is not None else set(capture.graphs)
    recordings = {
        number: recording
        for number, path in capture.graphs.items()
        if number in wanted and (recording := graph_replays.read(path)) is not None
    }
    return graph_replays.attach_operators(timeline, recordings, replayed, capture.kernel_lines)
