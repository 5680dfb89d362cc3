"""The diagnosis of a step in a trace file."""

from __future__ import annotations

from functools import partial

import msgspec

from boundby.analysis.account import Attribution, attribute_step
from boundby.analysis.verdict import VerdictResult, find_verdict
from boundby.capture import kineto
from boundby.diagnosis.advice import advise
from boundby.diagnosis.assembly import assemble
from boundby.hardware.datasheet_machine import from_datasheet
from boundby.model import Machine, Note, Timeline
from boundby.model.diagnosis import Diagnosis, GroupName, StepTimes, Verdict
from boundby.model.errors import BoundbyError
from boundby.step.build import build_step_model
from boundby.step.model import StepModel
from boundby.step.simulator import replay, with_host, with_wall

# Of a trace's host times, how much may be the host's own: half in the middle, from hardly any of it
# to all. The profilers of our own traces made steps 1.2 to 8 times as long.
_HOST_FACTORS = (0.5, 0.1, 1.0)
# Of a clean step, replayed with a host that costs nothing: from here on the device is the limit.
_KEPT_BUSY = 0.92


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
    notes = list(dict.fromkeys([*trace.notes, *timeline.notes]))
    if not len(timeline.device):
        notes.append(Note(code="cpu-trace", text="no device events: a CPU trace"))
    if not timeline.calls and len(timeline.host):
        text = (
            "operators carry no shapes, so their roofline minimum is unknown: record them with "
            "profile(record_shapes=True)"
        )
        notes.append(Note(code="no-shapes", text=text))
    if machine is None:
        machine = _machine_of(trace, notes)
    profiled = float(timeline.wall_ns)
    attribution = attribute_step(timeline, machine, wall_ns=wall_ns or profiled)
    if wall_ns is not None:
        step_models = _pinned(timeline, machine, attribution, wall_ns)
        step_model = step_models[0]
    else:
        step_model = build_step_model(timeline, machine, attribution, wall_ns=profiled, phases={})
        step_models = _guesses(timeline, machine, attribution)
    verdict_result = find_verdict(step_model)
    shortest = verdict_result.free_host_ns
    if verdict_result.verdict.uncertain and attribution.device_busy_ns:
        # A replay that does not explain the step cannot bound it: the device's busy time does.
        shortest = attribution.device_busy_ns
    interval = (wall_ns, wall_ns) if wall_ns else (min(shortest, profiled), profiled)
    walls = [float(step.wall_ns) for step in trace.steps]
    if waits := int((step_model.launches.depends >= 0).sum()):
        text = (
            f"the trace names no events between streams: {waits} waits are inferred from the "
            "observed order"
        )
        notes.append(Note(code="inferred-stream-waits", text=text))
    step = StepTimes(
        kind=timeline.label or "traced",
        wall_ns=wall_ns or profiled,
        wall_source="clean" if wall_ns else "profiled",
        wall_interval_ns=interval,
        samples_ns=[] if wall_ns else walls,
        device_busy_ns=attribution.device_busy_ns,
        kernels=attribution.kernels,
        dilation=profiled / wall_ns if wall_ns else None,
        replay_error=verdict_result.replay_error if wall_ns is None else None,
        inferred_share=attribution.inferred_share,
    )
    verdict = verdict_result.verdict
    if attribution.device_busy_ns and wall_ns is None:
        verdict = _for_traces(verdict_result, attribution)
    return assemble(
        attribution,
        timeline,
        target=str(trace.path),
        machine=machine,
        step=step,
        verdict=verdict,
        advice=advise(step_models, None),
        notes=notes,
    )


def _pinned(
    timeline: Timeline, machine: Machine, attribution: Attribution, wall_ns: float
) -> list[StepModel]:
    """The step with its host times brought down to the clean step's time, which the user knows.

    A host that keeps the device busy nearly all of that time runs ahead of it, nobody knows how
    far: it may take any part of the step's time.
    """

    def step_model(factor: float) -> StepModel:
        return build_step_model(
            timeline,
            machine,
            attribution,
            wall_ns=wall_ns,
            phases={},
            host=lambda launches: with_host(with_wall(launches, wall_ns), factor),
        )

    limit = step_model(1.0)
    if limit.device == "cpu" or replay(with_host(limit.launches, 0.0)) < _KEPT_BUSY * wall_ns:
        return [limit]
    return [step_model(factor) for factor in _HOST_FACTORS]


def _guesses(timeline: Timeline, machine: Machine, attribution: Attribution) -> list[StepModel]:
    """The step with as much of its host times as the profiler may have left."""
    return [
        build_step_model(
            timeline,
            machine,
            attribution,
            wall_ns=None,
            phases={},
            host=partial(with_host, factor=factor),
        )
        for factor in _HOST_FACTORS
    ]


def _machine_of(trace: kineto.Trace, notes: list[Note]) -> Machine:
    """The machine a trace names, from the datasheet table; one without roofs where it is not."""
    listed = next((device for device in trace.metadata.devices if device.name), None)
    if listed is None or listed.name is None:
        text = "the trace does not name its device, so there are no roofs: use --machine FILE"
        notes.append(Note(code="device-not-named", text=text))
        return Machine(device="unknown device", kind="cpu")
    machine = from_datasheet(listed.name, listed.memory_bytes)
    if machine is None:
        text = f"no datasheet lists {listed.name}, so there are no roofs: use --machine FILE"
        notes.append(Note(code="device-not-in-datasheet", text=text))
        return Machine(device=listed.name, kind="cuda", memory_bytes=listed.memory_bytes)
    return machine


def _for_traces(verdict_result: VerdictResult, attribution: Attribution) -> Verdict:
    """The verdict of a trace, whose host times hold the profiler's cost.

    `why` says whether the verdict also holds for the shortest step the trace allows: one with zero
    host time.
    """
    groups = attribution.account.groups()
    work = {
        name: group.ns if name != "overhead" else group.parts.get("small_kernels", 0.0)
        for name, group in groups.items()
    }
    shortest: GroupName = max(groups, key=lambda name: work[name])
    share = work[shortest] / max(sum(work.values()), 1.0)
    verdict = verdict_result.verdict
    if shortest == verdict.bound_by:
        why = f"{verdict.why} This holds whatever the profiler's overhead is."
        return msgspec.structs.replace(verdict, why=why)
    why = (
        f"{verdict.why} The trace includes profiler overhead: if all idle time is profiler "
        f"overhead, the step is {_bound(shortest)} ({share:.0%} of device time). Pass --wall TIME, "
        "the time of an unprofiled step, to decide."
    )
    return msgspec.structs.replace(verdict, uncertain=True, why=why)


def _bound(group: GroupName) -> str:
    return "bound by something unknown" if group == "unknown" else f"{group}-bound"
