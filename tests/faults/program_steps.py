"""CPU steps of a program, made by hand, for tests of faults."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from boundby.analysis.account import attribute_step
from boundby.model import HostKind, OpCall, Phase, Timeline
from boundby.model.evidence import (
    ModuleCall,
    StepEvidence,
)
from boundby.model.host_counters import HostCounters
from boundby.model.observation import Observation
from boundby.step.build import build_step_model
from boundby.step.model import StepModel
from tests.machines import round_machine
from tests.timelines import Scene, tensor

LINES = ["train.py:1", "train.py:2", "train.py:3"]
CALL = ModuleCall(module="Net", occurrence=1, where=["train.py:2"])
FIRST = ModuleCall(module="Net", occurrence=0, where=["train.py:2"])
BIG = OpCall(name="aten::relu", args=(tensor(1_000_000),))


def step_of(
    timeline: Timeline,
    lines: list[int],
    evidence: StepEvidence | None = None,
    phases: list[Phase] | None = None,
    host: HostCounters | None = None,
    *,
    functions: bool = False,
    **columns: Any,
) -> StepModel:
    """A CPU step whose host rows are at these lines, numbered from 0. `functions`: with a call of a
    function at the end, if there is none, as the recording of a program has."""
    lines, phases = list(lines), phases or [Phase.FORWARD] * len(lines)
    if functions and not (timeline.host.kind == HostKind.PYTHON).any():
        timeline = _with_function(timeline)
        lines, phases = [*lines, -1], [*phases, Phase.OTHER]
        columns = {name: np.append(column, -1) for name, column in columns.items()}
    places = {"source": np.array(lines, np.int32), "called": np.array(lines, np.int32)}
    changed = msgspec.structs.replace(
        timeline.host,
        phase=np.array(phases, np.int8),
        **(places | columns),
    )
    timeline = msgspec.structs.replace(timeline, host=changed, sources=LINES)
    machine, wall = round_machine(), float(timeline.wall_ns)
    attribution = attribute_step(timeline, machine, wall_ns=wall)
    return build_step_model(
        timeline,
        machine,
        attribution,
        wall_ns=wall,
        phases={},
        host_counters=host,
        observation=Observation(
            source="torch", framework="torch", evidence=evidence or StepEvidence()
        ),
    )


def _with_function(timeline: Timeline) -> Timeline:
    host, last = timeline.host, {"start_ns": timeline.end_ns, "duration_ns": 0}
    added = last | {"kind": HostKind.PYTHON, "name": len(timeline.names)}
    rows = {
        name: np.append(column, np.array([added.get(name, -1)], column.dtype))
        for name in host.__struct_fields__
        if (column := getattr(host, name)) is not None
    }
    return msgspec.structs.replace(
        timeline,
        names=[*timeline.names, "train.py(9): log"],
        host=msgspec.structs.replace(host, **rows),
    )


def two_calls(evidence: StepEvidence | None = None) -> StepModel:
    """A module called twice at one line, 100 us each, and 50 us of something else."""
    scene = Scene(end=250)
    for start in (0, 100):
        scene.on_host(start, start + 100, HostKind.PYTHON, f"nn.Module: Net_{start}")
        scene.on_host(start, start + 100, call=BIG)
    scene.on_host(200, 250, call=BIG)
    return step_of(scene.timeline(), [1, 1, 1, 1, 0], evidence)
