"""Step models of constructed steps, for tests of single faults."""

import msgspec
import numpy as np

from boundby import faults
from boundby.analysis.account import attribute_step
from boundby.model import Machine, Phase, Timeline
from boundby.model.finding import Finding
from boundby.model.host_counters import HostCounters
from boundby.step.build import build_step_model
from boundby.step.model import StepModel
from tests.machines import round_machine


def step_model_of(
    timeline: Timeline,
    machine: Machine | None = None,
    host_counters: HostCounters | None = None,
    wall_ns: float | None = None,
) -> StepModel:
    """A step model whose clean step is the timeline's own."""
    machine = machine or round_machine()
    wall = wall_ns or float(timeline.wall_ns)
    attribution = attribute_step(timeline, machine, wall_ns=wall)
    return build_step_model(
        timeline, machine, attribution, wall_ns=wall, phases={}, host_counters=host_counters
    )


def finding(step_model: StepModel, fault: str) -> Finding | None:
    return next((one for one in faults.find([step_model]) if one.fault == fault), None)


def sure(step_model: StepModel, fault: str) -> Finding:
    """A finding that must be there, its interval in order."""
    one = finding(step_model, fault)
    assert one is not None
    # To the nanosecond: two of them may be the same figure, rounded on two ways.
    assert one.saving_ns.low - 1 <= one.saving_ns.expected <= one.saving_ns.high + 1
    return one


def in_phase(timeline: Timeline, phase: Phase, rows: slice = slice(None)) -> Timeline:
    """The same step, with some of its host rows in another phase."""
    phases = timeline.host.phase.copy()
    phases[rows] = phase
    return msgspec.structs.replace(
        timeline, host=msgspec.structs.replace(timeline.host, phase=phases)
    )


def at_line(timeline: Timeline, line: str) -> Timeline:
    """The same step with all launches at one line."""
    source = np.zeros(len(timeline.host), np.int32)
    host = msgspec.structs.replace(timeline.host, source=source)
    return msgspec.structs.replace(timeline, host=host, sources=[line])
