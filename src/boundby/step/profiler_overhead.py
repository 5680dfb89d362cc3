"""Profiler overhead in a profiled step on a CPU, where it only lengthens the step.

It adds time to each event, most to operators. Python 3.11 also runs all of its instructions slower
under a profiler (a loop without calls took 1.5 times as long). The relative costs were measured in
the process itself; their total is the difference between the profiled and the clean time of each
phase, so that a loader with a million calls does not make operators shorter. What exceeds the
possible cost of events is not overhead: the whole step was slower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model import PYTHON_FRAMES, HostKind, Ints, Phase, ProfilerCallCost, Timeline
from boundby.model.assumptions.host import (
    PROFILED_BUILTIN_NS,
    PROFILED_FUNCTION_NS,
    PROFILED_OPERATOR_FUNCTIONS,
    PROFILER_FUNCTION_SHARE,
    PROFILER_OVERHEAD_FACTOR,
)
from boundby.step.host_intervals import HostIntervals, main_thread
from boundby.step.nesting import Mask, nearest

Floats = npt.NDArray[np.float64]

# With everything that a live run records, torch 2.13 and Python 3.11 took 1.05 us for an operator,
# 0.3 to 0.5 us for a function, 0.17 to 0.19 us for one in C.
_USUAL = ProfilerCallCost(
    function_ns=PROFILED_FUNCTION_NS.value, builtin_ns=PROFILED_BUILTIN_NS.value, of_python=0.0
)
# A step with a smaller share of CPU time says nothing about overhead.
_LEAST_ON_CORE = 0.05
_BUILTIN = re.compile(r"^<(?:built-in|method|slot)")
_CALLS = (*PYTHON_FRAMES, HostKind.DATA)


class ProfilerOverhead(NamedTuple):
    """Times to subtract: for each event, in the order of host rows, and for each host interval of
    Python's own code."""

    event_ns: Floats
    stretch_ns: Floats
    total_ns: float  # on the step's main thread


def find_profiler_overhead(
    timeline: Timeline,
    where: HostIntervals,
    *,
    wall_ns: float,
    phases: Mapping[str, float] | None = None,
    on_core: float = 1.0,
    besides_data: bool = False,
) -> ProfilerOverhead:
    """The costs that explain the difference between the profiled and the clean step, as far as
    possible. `on_core`: the share of the profiled step on a CPU core. `besides_data`: whether the
    difference and the phases are of the step without the making of its batches."""
    host, call_cost = timeline.host, timeline.call_cost or _USUAL
    thread = main_thread(timeline)
    events = _event_weights(timeline, call_cost)
    lengths = (where.end_ns - where.start_ns).astype(np.float64)
    in_python = np.append(python_code(timeline), False)[where.row]
    python = np.where(in_python, lengths, 0.0)
    of_event, of_stretch = (_phase_at(timeline, times) for times in (host.start_ns, where.start_ns))
    main_rows, main_intervals = host.thread == thread, where.thread == thread
    loads = host.kind == HostKind.DATA
    if besides_data and loads.any():
        of_data = np.append(nearest(host.parent, loads) >= 0, False)
        main_rows &= ~of_data[:-1]
        main_intervals &= ~of_data[where.row]
    took = _by_phase(of_stretch[main_intervals], lengths[main_intervals])
    longer = _longer(took, max(0.0, timeline.wall_ns - wall_ns), wall_ns, phases)
    counted = _by_phase(of_event[main_rows], events[main_rows])
    interpreted = _by_phase(of_stretch[main_intervals], python[main_intervals])
    share = np.minimum(
        PROFILER_FUNCTION_SHARE.value,
        call_cost.of_python * _over(longer, counted + call_cost.of_python * interpreted),
    )
    # A step that waits for a core also waits for it in the profiler.
    most = PROFILER_OVERHEAD_FACTOR.value / max(on_core, _LEAST_ON_CORE)
    factor = np.clip(_over(longer - share * interpreted, counted), 0.0, most)
    costs, slowed = events * factor[of_event], python * share[of_stretch]
    return ProfilerOverhead(
        costs, slowed, float(costs[main_rows].sum() + slowed[main_intervals].sum())
    )


def usual_overhead_ns(timeline: Timeline, where: HostIntervals) -> float:
    """The profiler overhead of the step's main thread if each event costs what it costs alone."""
    call_cost, thread = timeline.call_cost or _USUAL, main_thread(timeline)
    events = _event_weights(timeline, call_cost)[timeline.host.thread == thread]
    in_python = np.append(python_code(timeline), False)[where.row] & (where.thread == thread)
    interpreted = (where.end_ns - where.start_ns)[in_python]
    return float(events.sum() + call_cost.of_python * interpreted.sum())


def _by_phase(phase: Ints, amounts: Floats) -> Floats:
    sums = np.zeros(len(Phase))
    np.add.at(sums, phase, amounts)
    return sums


def _over(amounts: Floats, of: Floats) -> Floats:
    """The ratio, or zero if there is nothing to divide by."""
    result: Floats = np.divide(amounts, of, out=np.zeros(len(Phase)), where=of > 0)
    return result


def _longer(
    took: Floats, longer: float, wall_ns: float, phases: Mapping[str, float] | None
) -> Floats:
    """The time by which each phase exceeds its clean time; together, that of the step."""
    clean = np.array([(phases or {}).get(phase.name.lower(), 0.0) for phase in Phase])
    # Without marks all of the step is in one phase.
    if np.count_nonzero(took) < 2 or not clean.sum():
        return longer * took / max(1.0, float(took.sum()))
    # Phases were timed in other steps than the clean ones: only their proportions count.
    excess = np.clip(took - clean * wall_ns / clean.sum(), 0.0, None)
    excess[took == 0] = 0.0
    total = float(excess.sum())
    return longer * excess / total if total else longer * took / float(took.sum())


def _phase_at(timeline: Timeline, times: Ints) -> Ints:
    """The `Phase` of each time."""
    marks = timeline.phases
    if marks is None or not len(marks):
        return np.full(len(times), Phase.OTHER, np.int64)
    # A step whose first mark is no call of a module runs its forward without modules.
    first = Phase.OTHER if marks.phase[0] == Phase.FORWARD else Phase.FORWARD
    phases = np.concatenate([[first], marks.phase]).astype(np.int64)
    phase: Ints = phases[np.searchsorted(marks.start_ns, times, side="right")]
    return phase


def _event_weights(timeline: Timeline, call_cost: ProfilerCallCost) -> Floats:
    """The relative cost of each event."""
    is_call = np.isin(timeline.host.kind, _CALLS)
    call = np.where(python_code(timeline), call_cost.function_ns, call_cost.builtin_ns)
    # The cost of operators may be known where that of calls is not.
    operator = PROFILED_OPERATOR_FUNCTIONS.value * (call_cost.function_ns or _USUAL.function_ns)
    return np.where(is_call, call, operator)


def python_code(timeline: Timeline) -> Mask:
    """Rows in which the interpreter itself runs: Python functions, not those in C."""
    host = timeline.host
    in_c = np.array([bool(_BUILTIN.search(name)) for name in timeline.names] or [False])
    is_interpreted: Mask = np.isin(host.kind, _CALLS) & ~in_c[host.name]
    return is_interpreted
