"""The order of the work: account, step models, verdict, advice, doubts."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

import msgspec

from boundby import faults, ops
from boundby.analysis.account import Attribution, attribute_step
from boundby.analysis.verdict import find_verdict
from boundby.diagnosis.advice import Advice, Timer, advise, doubted, without_batches
from boundby.diagnosis.assembly import assemble, unknown_account
from boundby.diagnosis.datasheet import machine_of_datasheet
from boundby.diagnosis.decode import decode_limit
from boundby.diagnosis.doubts import UNUSUAL, doubts, measurement_notes
from boundby.diagnosis.host import unsteady
from boundby.diagnosis.models import StepModels, build_models
from boundby.diagnosis.profiled import (
    UNTRUSTED,
    UnprofiledStep,
    estimate_unprofiled,
    untrusted,
    verdict_over_range,
)
from boundby.diagnosis.steps import require_step, step_times
from boundby.model import Machine, Note, Precision, Timeline
from boundby.model.account import Verdict
from boundby.model.diagnosis import DecodeLimit, Diagnosis, StepTimes
from boundby.model.observation import Observation, StepTiming
from boundby.model.weights import ModelWeights
from boundby.step.cpu_ops import ExtraPages
from boundby.step.cpu_step import CpuWait
from boundby.step.preemption import without_preemption
from boundby.step.simulator import LaunchSequence

_FEWEST_SAMPLES = 4  # of steps, to say how much their work varies
_NO_VERDICT = Verdict(bound_by="unknown", uncertain=True, why="No step was profiled.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """The account of a profiled step, or of a step of which only the time is known."""

    attribution: Attribution
    verdict: Verdict = _NO_VERDICT
    replay_error: float | None = None
    unprofiled: UnprofiledStep | None = None
    advice: Advice = dataclasses.field(default_factory=Advice)
    notes: Sequence[Note] = ()
    launches: LaunchSequence | None = None  # of a step on a device


def diagnose(
    observation: Observation,
    machine: Machine | None = None,
    *,
    timer: Timer | None = None,
    weights: ModelWeights | None = None,
) -> Diagnosis:
    """Diagnose an observed step.

    `machine` defaults to the datasheet of the device. `timer` benchmarks single operators on the
    device; without it, predicted kernel times follow from the machine's roofs. `weights`, those of
    the model, are for the limit of a decode step.
    """
    step = require_step(observation)
    recorded, observation = observation.timeline, _without_preemption(observation)
    timeline = observation.timeline
    notes = [*observation.notes, *measurement_notes(observation, step)]
    if machine is None:
        machine, missing = machine_of_datasheet(observation.device)
        notes += missing
    if timeline is None:
        result = _not_profiled(step)
    else:
        result = _analyse(observation, step, timeline, machine, timer)
    notes += [note for note in result.notes if note not in notes]
    if any(note.code in UNTRUSTED for note in notes):
        result = dataclasses.replace(result, verdict=untrusted(result.verdict, notes))
    times = step_times(
        step,
        recorded,
        result.attribution,
        replay_error=result.replay_error,
        estimate=result.unprofiled.wall_ns if result.unprofiled else None,
    )
    limit = _decode_limit(observation, weights, result.attribution, machine, times)
    if isinstance(limit, Note):
        notes.append(limit)
        limit = None
    shown = timeline
    if timeline is not None and result.unprofiled is not None:
        shown = result.unprofiled.at_unprofiled_speed(timeline)
    return assemble(
        result.attribution,
        shown,
        target=observation.target,
        framework=observation.framework,
        machine=machine,
        step=times,
        precision=_precision(observation),
        verdict=result.verdict,
        advice=result.advice,
        notes=notes,
        run=observation.run,
        decode_limit=limit,
        launches=result.launches,
    )


def _not_profiled(step: StepTiming) -> _Result:
    text = "no profile: only the step's time is known, not where it went"
    note = Note(code="no-profile", text=text)
    return _Result(attribution=unknown_account(step.wall_ns or 0.0), notes=[note])


def _decode_limit(
    observation: Observation,
    weights: ModelWeights | None,
    attribution: Attribution,
    machine: Machine,
    times: StepTimes,
) -> DecodeLimit | Note | None:
    """The minimum time of a decode step, or why it is unknown; None without weights or profile."""
    if weights is None or observation.timeline is None:
        return None
    ranks = observation.rank.world if observation.rank is not None else None
    return decode_limit(
        weights,
        observation.timeline,
        attribution.op_records,
        machine,
        wall_ns=times.wall_ns,
        kind=times.series,
        ranks=ranks or 1,
    )


def _without_preemption(observation: Observation) -> Observation:
    if observation.timeline is None:
        return observation
    profiled = observation.profiled
    timeline, left_ns = without_preemption(observation.timeline, profiled.cpu_wait_ns)
    return msgspec.structs.replace(
        observation,
        timeline=timeline,
        profiled=msgspec.structs.replace(profiled, cpu_wait_ns=left_ns),
    )


def _analyse(
    observation: Observation,
    step: StepTiming,
    timeline: Timeline,
    machine: Machine,
    timer: Timer | None,
) -> _Result:
    """The result of a profiled step, with notes on it and on what failed meanwhile."""
    with ops.failures.collected() as failures, faults.failures.collected() as undetected:
        result = _analyse_profile(observation, step, timeline, machine, timer)
    notes = [
        *result.notes,
        *(_failed_formula(*failure) for failure in failures.items()),
        *(_failed_fault(*failure) for failure in undetected.items()),
        *(unsteady(observation.host_speed) if len(timeline.device) else []),
        *timeline.notes,
    ]
    return dataclasses.replace(result, notes=notes)


def _analyse_profile(
    observation: Observation,
    step: StepTiming,
    timeline: Timeline,
    machine: Machine,
    timer: Timer | None,
) -> _Result:
    """The profiled step's account, verdict and advice; uncertain if it is unlike other steps."""
    wall_ns = float(timeline.wall_ns) if step.wall_ns is None else step.wall_ns
    unprofiled = None
    if step.wall_ns is None and len(timeline.device):
        unprofiled = estimate_unprofiled(timeline, machine)
        wall_ns = unprofiled.wall_ns.expected
    attribution = _attribute(observation, step, timeline, machine, wall_ns, unprofiled)
    models = build_models(observation, step, timeline, machine, attribution, unprofiled)
    verdict_result = find_verdict(models.observed)
    advice = advise(models.for_advice, timer)
    found_doubts = doubts(observation, timeline, attribution, machine, wall_ns)
    verdict = verdict_result.verdict
    if unprofiled is not None:
        ends = [find_verdict(model).verdict for model in models.for_advice[1:]]
        verdict = verdict_over_range(verdict, *ends) if ends else verdict
    if found_doubts:
        why = f"{verdict.why} But {found_doubts[0].text}."
        verdict = msgspec.structs.replace(verdict, uncertain=True, why=why)
        advice = doubted(advice, wall_ns)
    if any(note.code in UNUSUAL for note in found_doubts):
        advice = without_batches(advice)
    return _Result(
        attribution=attribution,
        verdict=verdict,
        replay_error=verdict_result.replay_error if step.wall_source != "given" else None,
        unprofiled=unprofiled,
        advice=advice,
        launches=None if models.observed.device == "cpu" else models.observed.launches,
        notes=[*found_doubts[1:], *_inferred_waits(models, step)],
    )


def _failed_formula(name: str, traceback: str) -> Note:
    error = traceback.strip().splitlines()[-1]
    text = f"the cost formula of {name} raised {error}: its cost is unknown"
    return Note(code="formula-failed", text=text, detail=traceback)


def _failed_fault(fault: str, traceback: str) -> Note:
    error = traceback.strip().splitlines()[-1]
    text = f"the check for {fault} failed ({error}): whether the step has it is unknown"
    return Note(code="fault-failed", text=text, detail=traceback)


def _attribute(
    observation: Observation,
    step: StepTiming,
    timeline: Timeline,
    machine: Machine,
    wall_ns: float,
    unprofiled: UnprofiledStep | None,
) -> Attribution:
    host, profiled = observation.host, observation.profiled
    data_ns = cpu_wait = pages = slow_ns = None
    if host is not None:
        if len(step.samples_ns) >= _FEWEST_SAMPLES:
            slow_ns = statistics.quantiles(step.samples_ns, n=10, method="inclusive")[-1]
        lost_ns = host.cpu_wait_share * wall_ns
        if host.data_share is not None:
            data_ns = host.data_share * wall_ns - host.loading_share * lost_ns
        if host.main is not None:
            # While the process makes batches itself, it may wait for a core as well.
            waited_ns = profiled.cpu_wait_ns * (1 - host.loading_share)
            cpu_wait = CpuWait(clean_ns=lost_ns, profiled_ns=waited_ns)
        more = 0.0
        if host.steps_ns and profiled.fresh_pages is not None:
            more = max(0.0, profiled.fresh_pages - host.fresh_pages / len(host.steps_ns))
        pages = ExtraPages(count=more, each_ns=host.fresh_page_ns)
    return attribute_step(
        timeline,
        machine,
        wall_ns=wall_ns,
        phases=step.phases,
        launches=unprofiled.host.expected if unprofiled and unprofiled.is_explained else None,
        where=unprofiled.where if unprofiled else None,
        data_ns=data_ns,
        cpu_wait=cpu_wait,
        fresh_pages=pages,
        slow_ns=slow_ns,
        precision=_precision(observation),
        lines=observation.lines,
    )


def _precision(observation: Observation) -> Precision:
    """The formats allowed for float32 products on the device that the step ran on."""
    kind, timeline = observation.device.kind, observation.timeline
    # A step may leave the device of its process unused.
    idle = timeline is not None and not len(timeline.device)
    return observation.settings.precision("cpu" if idle else kind)


def _inferred_waits(models: StepModels, step: StepTiming) -> list[Note]:
    """A note on inferred waits between streams, unless the clean step time was measured."""
    waits = int((models.observed.launches.depends >= 0).sum())
    if step.wall_source not in ("given", "profiled") or not waits:
        return []
    text = (
        "the trace names no events between streams: waits inferred from the observed order: "
        f"{waits}"
    )
    return [Note(code="inferred-stream-waits", text=text)]
