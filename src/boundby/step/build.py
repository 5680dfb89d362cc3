"""Builds the model of a step: of a device step or of a CPU step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from boundby.model import Machine, Timeline
from boundby.model.host_counters import HostCounters
from boundby.model.observation import Observation
from boundby.model.run import RunParts
from boundby.step.cpu import CpuStep
from boundby.step.device import DeviceStep
from boundby.step.model import Attributed, OperatorBenchmarks, StepModel
from boundby.step.simulator import LaunchSequence


def build_step_model(
    timeline: Timeline,
    machine: Machine,
    attribution: Attributed,
    *,
    wall_ns: float | None,
    phases: Mapping[str, float],
    host: Callable[[LaunchSequence], LaunchSequence] = lambda launches: launches,
    launches: LaunchSequence | None = None,
    timings: OperatorBenchmarks | None = None,
    host_counters: HostCounters | None = None,
    in_phases_ns: float | None = None,
    cpu_contention: float = 1.0,
    samples: int | None = None,
    run: RunParts | None = None,
    observation: Observation | None = None,
) -> StepModel:
    """A device step if there are device events, else a CPU step."""
    if len(timeline.device):
        return DeviceStep(
            timeline,
            machine,
            attribution,
            wall_ns=wall_ns,
            phases=phases,
            host=host,
            launches=launches,
            timings=timings,
            host_counters=host_counters,
            cpu_contention=cpu_contention,
            samples=samples,
            run=run,
            observation=observation,
        )
    return CpuStep(
        timeline,
        machine,
        attribution,
        wall_ns=wall_ns,
        phases=phases,
        in_phases_ns=in_phases_ns,
        timings=timings,
        host_counters=host_counters,
        cpu_contention=cpu_contention,
        samples=samples,
        run=run,
        observation=observation,
    )
