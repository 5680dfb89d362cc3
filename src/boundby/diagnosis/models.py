"""The step models of an observation: the step as observed, and with other host times.

How well the host's time is known depends on the source of the wall time: measured with clean steps
beside the profile, given by the user, or unknown.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from functools import partial

import numpy as np

from boundby.analysis.account import Attribution
from boundby.diagnosis.host import cpu_contention, host_factors, slower_than_measured
from boundby.diagnosis.profiled import UnprofiledStep
from boundby.model import Machine, Timeline
from boundby.model.assumptions.host import HOST_FACTOR
from boundby.model.assumptions.verdict import DEVICE_LIMITED
from boundby.model.observation import Observation, StepTiming
from boundby.step.build import build_step_model
from boundby.step.model import OperatorBenchmarks, StepModel
from boundby.step.simulator import (
    LaunchSequence,
    explaining_host,
    issue_ns,
    replay,
    with_host,
    with_wall,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepModels:
    """`observed` is the unchanged step. `for_advice` are the models in which changes are tried:
    with the likeliest host time, then with its range; one model, if there is no range."""

    observed: StepModel
    for_advice: list[StepModel]


def build_models(
    observation: Observation,
    step: StepTiming,
    timeline: Timeline,
    machine: Machine,
    attribution: Attribution,
    unprofiled: UnprofiledStep | None = None,
) -> StepModels:
    """`unprofiled`: the estimate of a step on a device of which only profiled times are known."""
    if unprofiled is not None:
        return _estimated(observation, step, timeline, machine, attribution, unprofiled)
    if step.wall_ns is None:
        profiled = float(timeline.wall_ns)
        model = _model(observation, step, timeline, machine, attribution, profiled, _unchanged)
        return StepModels(observed=model, for_advice=[model])
    if step.wall_source == "given":
        return _given(step.wall_ns, observation, step, timeline, machine, attribution)
    return _measured(step.wall_ns, observation, step, timeline, machine, attribution)


def _measured(
    wall_ns: float,
    observation: Observation,
    step: StepTiming,
    timeline: Timeline,
    machine: Machine,
    attribution: Attribution,
) -> StepModels:
    """Clean steps were measured, and the host's time for each phase."""
    timings = OperatorBenchmarks()
    # Not the sum of the phases' medians: on a host with occasional disturbances most steps are
    # disturbed in one phase or another.
    steps = [sum(phases.values()) for phases in step.issue]
    slower = slower_than_measured(observation.host_speed, machine)
    crowded = 1.0
    if observation.host is not None:
        crowded = cpu_contention(attribution, observation.host, wall_ns)

    def model(factor: float) -> StepModel:
        return build_step_model(
            timeline,
            machine.with_host_slowdown(slower * factor * crowded),
            attribution,
            wall_ns=wall_ns,
            phases=step.phases,
            host=partial(with_host, factor=factor),
            timings=timings,
            host_counters=observation.host,
            in_phases_ns=statistics.median(steps) if steps else None,
            cpu_contention=crowded,
            samples=step.kind.samples,
            run=observation.run,
            observation=observation,
        )

    observed = model(1.0)
    if observed.device == "cpu":
        return StepModels(observed=observed, for_advice=[observed])
    factors = host_factors(
        step,
        observation.host_speed,
        wall_ns=wall_ns,
        issued_ns=issue_ns(observed.launches),
        explaining=explaining_host(observed.launches, wall_ns),
    )
    return StepModels(observed=observed, for_advice=[model(factor) for factor in factors])


def _given(
    wall_ns: float,
    observation: Observation,
    step: StepTiming,
    timeline: Timeline,
    machine: Machine,
    attribution: Attribution,
) -> StepModels:
    """The host's times are scaled down to the clean step's time, which the user gave.

    A host that keeps the device busy nearly all of that time runs ahead of it, by an unknown
    amount: it may take any part of the step's time.
    """

    def host(launches: LaunchSequence, factor: float) -> LaunchSequence:
        return with_host(with_wall(launches, wall_ns), factor)

    def model(factor: float) -> StepModel:
        return _model(
            observation, step, timeline, machine, attribution, wall_ns, partial(host, factor=factor)
        )

    limit = model(1.0)
    if (
        limit.device == "cpu"
        or replay(with_host(limit.launches, 0.0)) < DEVICE_LIMITED.value * wall_ns
    ):
        return StepModels(observed=limit, for_advice=[limit])
    models = [model(factor) for factor in (HOST_FACTOR.value, HOST_FACTOR.low, HOST_FACTOR.high)]
    return StepModels(observed=models[0], for_advice=models)


def _estimated(
    observation: Observation,
    step: StepTiming,
    timeline: Timeline,
    machine: Machine,
    attribution: Attribution,
    unprofiled: UnprofiledStep,
) -> StepModels:
    """The step without the profiler: as estimated, and at both ends of the range."""
    wall, host = unprofiled.wall_ns, unprofiled.host
    ends = [(wall.expected, host.expected), (wall.low, host.low), (wall.high, host.high)]
    # Without a range, such as for a trace without host events, one simulation is enough.
    if all(_is_same_host(launches, host.expected) for _, launches in ends):
        ends = ends[:1]
    models = [
        _model(
            observation,
            step,
            timeline,
            machine,
            attribution,
            wall_ns,
            _unchanged,
            launches=is_known,
        )
        for wall_ns, is_known in ends
    ]
    return StepModels(observed=models[0], for_advice=models)


def _model(
    observation: Observation,
    step: StepTiming,
    timeline: Timeline,
    machine: Machine,
    attribution: Attribution,
    wall_ns: float | None,
    host: Callable[[LaunchSequence], LaunchSequence],
    *,
    launches: LaunchSequence | None = None,
) -> StepModel:
    return build_step_model(
        timeline,
        machine,
        attribution,
        wall_ns=wall_ns,
        phases=step.phases,
        host=host,
        launches=launches,
        samples=step.kind.samples,
        observation=observation,
    )


def _is_same_host(one: LaunchSequence, other: LaunchSequence) -> bool:
    return one.after_ns == other.after_ns and np.array_equal(one.host_ns, other.host_ns)


def _unchanged(launches: LaunchSequence) -> LaunchSequence:
    return launches
