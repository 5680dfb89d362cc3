"""What a compiled step asks of its host: launches of generated kernels, calls of libraries, entry.

On an H200's host, in three models that train, a generated kernel took 22 to 27 us with all that
goes with it: buffers, arguments, what is kept for the backward. In a small compiled function that
trains it took 23 to 26 as well, in one without gradients 14. What lies between eager operators,
views and nodes of autograd, is not there any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.model import HostKind, Phase
from boundby.model.assumptions.host import COMPILED_LAUNCH_FACTOR
from boundby.step.fusion_groups import is_fusible
from boundby.step.graph_break_regions import graph_break_rows
from boundby.step.model import StepView
from boundby.step.user_python import kept

Floats = npt.NDArray[np.float64]
# Going into a compiled forward, and into its backward, takes the host as long as so many launches,
# and for each parameter so many more: guards, what is kept for the backward, gradients handed over.
# Seen with 2 to 64 parameters on a CPU, in units of an eager backward's launches. Where the graph
# breaks there is one function more to go into.
_ENTRY_LAUNCHES = {Phase.FORWARD: (25.0, 0.3), Phase.BACKWARD: (25.0, 0.9)}
_HANDED_OVER = "AccumulateGrad"


def launch_costs(step: StepView) -> tuple[float, float, float]:
    """Host time for one launch of a compiled kernel: the worst, the expected, the best.

    In a step that trains, what it took in a small one that did when the machine was measured, at
    this host's pace. (How long the step's own operators take does not tell: they differ by more
    from step to step.) Else what it takes on its own, as much longer as this step's eager operators
    take inside it than on their own; at best it comes half way back from there.
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
    alone = overheads.compiled_kernel_ns or eager
    inside = _operator_ns(step)
    here = alone * inside / eager if inside and eager else alone
    return COMPILED_LAUNCH_FACTOR.value * here, here, min(here, (here + alone) / 2)


def compiled_host_ns(step: StepView, gone: list[int], launch_ns: float) -> Floats:
    """Host time before each action, with forward and backward compiled and some work gone.

    They are launched kernel after kernel; the rest of the loop stays.
    """
    launches = step.launches
    stays = kept(step).before_ns
    host = launches.host_ns - stays
    vanished, called = _marked(step, gone), _marked(step, _libraries(step))
    left = graph_break_rows(step)
    compiled = (launches.phase != Phase.OPTIMIZER) & (launches.wait == 0)
    compiled &= ~_marked(step, left.op_records)
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
    for phase, (memoised, each) in _ENTRY_LAUNCHES.items():
        first = np.flatnonzero(compiled & (launches.phase == phase))[:1]
        entries = (1 + left.calls) * memoised + each * count
        host[first] += entries * (_eager_launch_ns(step) or launch_ns)
    return host + stays


def _libraries(step: StepView) -> Iterable[int]:
    """Work that stays the call of a library."""
    return (index for index in range(len(step.op_records)) if not is_fusible(step, index))


def _marked(step: StepView, op_records: Iterable[int]) -> npt.NDArray[np.bool_]:
    """The actions that belong to these works."""
    marked = np.zeros(len(step.launches.rows), np.bool_)
    marked[step.actions_of(list(op_records))] = True
    return marked


def _eager_launch_ns(step: StepView) -> float | None:
    """Of this step's backward, which runs without an interpreter, with all that lies between.

    A gradient that is handed over takes about as long as a launch. A recurrent layer's hundreds of
    launches from within one call say nothing of that.
    """
    launches = step.launches
    if step.device == "cpu":
        return None
    launched = ~_marked(step, graph_break_rows(step).layers)
    backward = launches.host_ns[launched & (launches.phase == Phase.BACKWARD)]
    inside, count = (
        (backward, _parameters(step)) if len(backward) else (launches.host_ns[launched], 0)
    )
    # What another fix has taken away is not launched any more.
    launched_ops = int((inside > 0).sum())
    return float(inside.sum()) / (launched_ops + count) if launched_ops else None


def _operator_ns(step: StepView) -> float | None:
    """What a simple eager operator takes the host inside this step: of one launch, in backward
    where there is one."""
    launches = step.launches
    if step.device == "cpu":
        return None
    operators = _Operators.of(step)
    simple = operators.alone & (launches.host_ns > 0)
    simple &= ~_marked(step, _libraries(step))
    backward = simple & (launches.phase == Phase.BACKWARD)
    seen = operators.own_ns[backward if backward.any() else simple]
    return float(np.median(seen)) if len(seen) else None


@dataclass(frozen=True, slots=True)
class _Operators:
    """The outermost operators that a step's actions belong to.

    `own_ns`: of the host's time for each action, and after it, what its operator takes; what
    calls the operator may go. `first`: it is its operator's first; `alone`: the only one.
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
        # From the profiler's clock to the clean one.
        pace = launches.host_ns / np.maximum(ended - before, 1)
        inside = np.clip(ended - np.maximum(host.start_ns[outer], before), 0, None)
        # After its last launch an operator tidies up, before the next action's end.
        another = outer[1:] != outer[:-1]
        first, last = np.append(True, another), np.append(another, False)
        after = np.where(last, np.minimum(ends[outer], np.append(ended[1:], 0)) - ended, 0)
        own = inside * pace + np.clip(after, 0, None) * np.append(pace[1:], 0.0)
        return cls(own, first, first & np.append(another, True))


def _outermost(step: StepView) -> npt.NDArray[np.int64]:
    """The row of the outermost operator around each action, or the action's own."""
    launches, timeline = step.launches, step.timeline
    host = timeline.host
    named = np.array(["::" in name and "autograd::" not in name for name in timeline.names])
    operator = (host.kind == HostKind.OP) & named[host.name]
    outer = np.empty(len(launches.rows), np.int64)
    for action, row in enumerate(launches.rows):
        found = row
        while (above := host.parent[found]) >= 0 and (operator[above] or not operator[found]):
            found = above
        outer[action] = found if operator[found] else row
    return outer


def _parameters(step: StepView) -> int:
    """How many gradients the step hands over."""
    names = step.timeline.names
    handed = np.array([name.endswith(_HANDED_OVER) for name in names] or [False])
    # The engine's own row, and the node's inside it.
    engine = np.array([name.startswith("autograd::engine::") for name in names] or [False])
    return int((handed & engine)[step.timeline.host.name].sum())
