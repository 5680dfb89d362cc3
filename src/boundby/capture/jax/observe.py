"""From the capture of a JAX script to an Observation."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable

import msgspec

from boundby.capture.jax import compat
from boundby.capture.jax.hooks import Function
from boundby.capture.jax.host_lines import with_lines
from boundby.capture.jax.places import Place
from boundby.capture.jax.recorder import JaxCapture
from boundby.capture.kineto.names import clean, shortened
from boundby.capture.torch.observe import source_lines
from boundby.capture.xplane.source import observe_trace
from boundby.capture.xplane.trace import read
from boundby.model.diagnosis import KindOfStep
from boundby.model.evidence import ProgramSettings, StepEvidence
from boundby.model.jax_facts import JaxCompilation, JaxFacts, JaxFunction
from boundby.model.observation import (
    HostSpeed,
    Observation,
    ObservedDevice,
    RankInfo,
    Settings,
    StepTiming,
    WallSource,
)


def observe(capture: JaxCapture, *, target: str | None = None) -> Observation:
    """One step of a script that was watched."""
    profile = _profiled(capture)
    facts = _facts(capture)
    versions = {"jax": facts_version} if (facts_version := capture.settings.get("jax")) else {}
    if profile is None:
        profile = Observation(
            source="jax", framework="jax", device=ObservedDevice(kind=_kind(capture))
        )
    settings = Settings(
        versions={**profile.settings.versions, **versions},
        threads=compat.threads() if _kind(capture) == "cpu" else None,
    )
    notes = [*capture.notes, *profile.notes]
    device = profile.device
    if device.kind == "cuda" or device.kind == "cpu":
        device = msgspec.structs.replace(device, index=0 if device.kind == "cuda" else None)
    return msgspec.structs.replace(
        profile,
        source="jax",
        target=target,
        device=device,
        step=_timing(capture),
        host=capture.host_counters,
        settings=settings,
        host_speed=HostSpeed(
            addition_ns=capture.addition_ns, issue_addition_ns=capture.issue_addition_ns
        ),
        lines={} if profile.timeline is None else source_lines(profile.timeline),
        jax=facts,
        evidence=StepEvidence(
            settings=ProgramSettings(doubles_made_at=_sources(capture.doubles_at))
        ),
        run=capture.run,
        rank=None if capture.rank is None else RankInfo(rank=capture.rank, world=capture.world),
        seen=capture.seen,
        started=capture.started,
        notes=notes,
    )


def _profiled(capture: JaxCapture) -> Observation | None:
    """The profiled step of the main kind that is nearest to the clean ones."""
    if capture.trace is None or not capture.profiled_steps or capture.main_kind is None:
        return None
    trace = read(capture.trace, _roots())
    wall_ns = statistics.median(_samples(capture, capture.main_kind))
    wanted = [at for at in capture.profiled_steps if at < len(trace.steps)]
    if not wanted:
        return None
    index = min(wanted, key=lambda at: abs(trace.steps[at].wall_ns - wall_ns))
    observed = observe_trace(trace, index=index, wall_ns=wall_ns)
    if capture.lines is None or observed.timeline is None:
        return observed
    timeline = with_lines(observed.timeline, trace.timeline(0), capture.lines, _place)
    return msgspec.structs.replace(observed, timeline=timeline)


def _place(place: Place) -> str:
    file, line = place
    return clean(f"{shortened(_relative(file))}:{line}")


def _samples(capture: JaxCapture, kind: str) -> list[float]:
    warmup = capture.warmup.get(kind, [])
    return capture.clean.get(kind) or warmup[1:] or warmup


def _timing(capture: JaxCapture) -> StepTiming | None:
    kind = capture.main_kind
    if kind is None:
        return None
    samples = _samples(capture, kind)
    source: WallSource = "clean" if kind in capture.clean else "warm-up"
    return StepTiming(
        kind=capture.kinds[kind],
        wall_source=source,
        wall_ns=statistics.median(samples),
        samples_ns=list(samples),
        phases=capture.phases,
        issue=capture.issue,
        others=_others(capture, kind),
    )


def _others(capture: JaxCapture, main: str) -> list[KindOfStep]:
    seen: dict[str, list[float]] = {}
    for kinds in (capture.warmup, capture.clean):
        for kind, times in kinds.items():
            seen.setdefault(kind, []).extend(times)
    return [
        KindOfStep(
            kind=kind,
            mode=capture.kinds[kind].mode,
            steps=len(times),
            wall_ns=statistics.median(times),
        )
        for kind, times in seen.items()
        if kind != main
    ]


def _kind(capture: JaxCapture) -> str:
    return {"gpu": "cuda", "tpu": "tpu"}.get(capture.platform, "cpu")


def _facts(capture: JaxCapture) -> JaxFacts:
    settings = capture.settings
    return JaxFacts(
        function=_function(capture.anchor) if capture.anchor is not None else None,
        functions=[_function(one) for one in capture.functions],
        checkpoints=_sources(capture.checkpoints),
        donates=capture.donates,
        leaves=capture.leaves,
        carried_bytes=capture.carried_bytes,
        host_arrays=capture.host_arrays,
        compilations=[
            JaxCompilation(
                function=one.function,
                step=one.step,
                ns=one.ns,
                is_new=one.why is not None and one.why.is_new,
                changes=list(one.why.changes) if one.why is not None else [],
                where=_source(one.place),
            )
            for one in capture.compilations
        ],
        warmup_steps=sum(map(len, capture.warmup.values())),
        matmul_precision=settings.get("matmul_precision"),
        debug_nans=bool(settings.get("debug_nans")),
        has_compilation_cache=settings.get("compilation_cache") is not None,
    )


def _function(function: Function) -> JaxFunction:
    return JaxFunction(
        name=function.name,
        source=_source(function.place),
        made=function.made,
        variants=compat.variants(function.compiled) if function.compiled is not None else None,
        traced_gradient=function.traced_gradient,
        library=function.library,
        batch=list(function.batch),
        carries=function.carries,
        is_fed=function.is_fed,
        samples=function.samples,
    )


def _sources(places: Iterable[Place]) -> list[str]:
    return [f"{_relative(file)}:{line}" for file, line in places]


def _source(place: Place | None) -> str | None:
    return f"{_relative(place[0])}:{place[1]}" if place is not None else None


def _relative(file: str) -> str:
    """A file as seen from where it is imported, as profiles name it."""
    root = next((root for root in _roots() if file.startswith(root)), "")
    return file[len(root) :]


def _roots() -> tuple[str, ...]:
    """The folders that modules are imported from, the longest first."""
    return tuple(sorted((f"{root}/" for root in sys.path if root), key=len, reverse=True))
