"""Host time of a compiled step: launches of generated kernels, library calls, function entry.

A launch of a generated kernel includes buffers, arguments and what is saved for backward. Time
between eager operators, views and autograd nodes is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.model import HostKind, Phase
from boundby.model.assumptions.generated_code import (
    BACKWARD_PARAMETER_LAUNCHES,
    ENTRY_LAUNCHES,
    FORWARD_PARAMETER_LAUNCHES,
)
from boundby.model.assumptions.host import COMPILED_LAUNCH_FACTOR
from boundby.step.fusion_groups import is_fusible
from boundby.step.graph_break_regions import graph_break_rows
from boundby.step.model import StepView
from boundby.step.user_python import host_time_outside_model

Floats = npt.NDArray[np.float64]
# Entering a compiled function costs launches, and more for each parameter. Each graph break adds a
# function.
_PARAMETER_LAUNCHES = {
    Phase.FORWARD: FORWARD_PARAMETER_LAUNCHES.value,
    Phase.BACKWARD: BACKWARD_PARAMETER_LAUNCHES.value,
}
_HANDED_OVER = "AccumulateGrad"


def launch_costs(step: StepView) -> tuple[float, float, float]:
    """Host time for one launch of a compiled kernel: worst, expected, best.

    In a training step, the launch time of a small training function when the machine was measured,
    scaled to this host's speed. (The step's own operators are not used: their times vary more from
    step to step.) Otherwise its time alone, scaled by how much longer this step's eager operators
    take inside the step than alone; at best, half of that increase.
    """
    overheads, launches = step.machine.overheads, step.launches
    if (launches.phase == Phase.BACKWARD).any():
        trained = overheads.trained_kernel_ns
        if trained is not None:
            return (
                COMPILED_LAUNCH_FACTOR.value * trained,
                trained,
                trained / COMPILED_LAUNCH_FACTOR.value,
            )
    eager = overheads.eager_op_ns or 0.0
    alone_ns = overheads.compiled_kernel_ns or eager
    inside = _operator_ns(step)
    here_ns = alone_ns * inside / eager if inside and eager else alone_ns
    return COMPILED_LAUNCH_FACTOR.value * here_ns, here_ns, min(here_ns, (here_ns + alone_ns) / 2)


def compiled_host_ns(step: StepView, gone: list[int], launch_ns: float) -> Floats:
    """Host time before each action, with forward and backward compiled and some operations removed.

    Their kernels are launched one after the other; the rest of the loop is unchanged.
    """
    launches = step.launches
    unchanged_ns = host_time_outside_model(step).before_ns
    host = launches.host_ns - unchanged_ns
    vanished, called = _marked(step, gone), _marked(step, _libraries(step))
    uncompiled = graph_break_rows(step)
    compiled = (launches.phase != Phase.OPTIMIZER) & (launches.wait == 0)
    compiled &= ~_marked(step, uncompiled.op_records)
    operators = _Operators.of(step)
    waiting = 0.0
    for action in np.flatnonzero(compiled):
        waiting += host[action]
        if vanished[action]:
            host[action] = 0.0
        else:
            launched = launch_ns if operators.first[action] else min(waiting, launch_ns)
            host[action] = operators.own_ns[action] if called[action] else launched
            waiting = 0.0
    count = _parameters(step)
    for phase, each in _PARAMETER_LAUNCHES.items():
        first = np.flatnonzero(compiled & (launches.phase == phase))[:1]
        entries = (1 + uncompiled.calls) * ENTRY_LAUNCHES.value + each * count
        host[first] += entries * (_eager_launch_ns(step) or launch_ns)
    return host + unchanged_ns


def _libraries(step: StepView) -> Iterable[int]:
    """Operations that remain library calls."""
    return (index for index in range(len(step.op_records)) if not is_fusible(step, index))


def _marked(step: StepView, op_records: Iterable[int]) -> npt.NDArray[np.bool_]:
    """The actions that belong to these operations."""
    marked = np.zeros(len(step.launches.rows), np.bool_)
    marked[step.actions_of(list(op_records))] = True
    return marked


def _eager_launch_ns(step: StepView) -> float | None:
    """Host time of an eager launch in this step's backward, which runs without an interpreter, with
    all time between launches.

    Returning a gradient takes about as long as a launch. A recurrent layer's hundreds of launches
    from one call are not typical and left out.
    """
    launches = step.launches
    if step.device == "cpu":
        return None
    launched = ~_marked(step, graph_break_rows(step).layers)
    backward = launches.host_ns[launched & (launches.phase == Phase.BACKWARD)]
    inside, count = (
        (backward, _parameters(step)) if len(backward) else (launches.host_ns[launched], 0)
    )
    # Launches that another fix has removed do not count.
    launched_ops = int((inside > 0).sum())
    return float(inside.sum()) / (launched_ops + count) if launched_ops else None


def _operator_ns(step: StepView) -> float | None:
    """Host time of a simple eager operator with one launch in this step; in backward, if there is
    one."""
    launches = step.launches
    if step.device == "cpu":
        return None
    operators = _Operators.of(step)
    simple = operators.alone & (launches.host_ns > 0)
    simple &= ~_marked(step, _libraries(step))
    backward = simple & (launches.phase == Phase.BACKWARD)
    operator_ns = operators.own_ns[backward if backward.any() else simple]
    return float(np.median(operator_ns)) if len(operator_ns) else None


@dataclass(frozen=True, slots=True)
class _Operators:
    """The outermost operators that a step's actions belong to.

    `own_ns`: the part of the host time before and after each action that its operator takes; its
    caller may be removed. `first`: it is its operator's first action; `alone`: its only one.
    """

    own_ns: Floats
    first: npt.NDArray[np.bool_]
    alone: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, step: StepView) -> _Operators:
        launches, host = step.launches, step.timeline.host
        outer = _outermost(step)
        ends = host.start_ns + host.duration_ns
        ended = ends[launches.rows]
        before = np.concatenate(([host.start_ns[outer[0]]], ended[:-1]))
        # From profiled to clean time.
        clean_ratio = launches.host_ns / np.maximum(ended - before, 1)
        inside = np.clip(ended - np.maximum(host.start_ns[outer], before), 0, None)
        # After its last launch an operator takes time until it ends, before the next action.
        another = outer[1:] != outer[:-1]
        first, last = np.append(True, another), np.append(another, False)
        after = np.where(last, np.minimum(ends[outer], np.append(ended[1:], 0)) - ended, 0)
        own_ns = inside * clean_ratio + np.clip(after, 0, None) * np.append(clean_ratio[1:], 0.0)
        return cls(own_ns, first, first & np.append(another, True))


def _outermost(step: StepView) -> npt.NDArray[np.int64]:
    """The row of the outermost operator around each action, or the action's own row."""
    launches, timeline = step.launches, step.timeline
    host = timeline.host
    named = np.array(["::" in name and "autograd::" not in name for name in timeline.names])
    operator = (host.kind == HostKind.OP) & named[host.name]
    outer = np.empty(len(launches.rows), np.int64)
    for action, row in enumerate(launches.rows):
        outermost = row
        while (above := host.parent[outermost]) >= 0 and (
            operator[above] or not operator[outermost]
        ):
            outermost = above
        outer[action] = outermost if operator[outermost] else row
    return outer


def _parameters(step: StepView) -> int:
    """The number of gradients that backward returns."""
    names = step.timeline.names
    returns_gradient = np.array([name.endswith(_HANDED_OVER) for name in names] or [False])
    # The autograd engine's row, and the node's row inside it.
    engine = np.array([name.startswith("autograd::engine::") for name in names] or [False])
    return int((returns_gradient & engine)[step.timeline.host.name].sum())
