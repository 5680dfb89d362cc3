"""The host's time without the profiler, for a step that was seen only with it: low, expected, high.

A profiler adds a cost to each event that it records. The result is the geometric mean of two
independent estimates:

- the profiled time minus the usual cost of each operator, Python call and runtime call;
- the usual host time for as many launches without a profiler, within the range in which the event
  costs may differ from the usual ones.

Time in which few events were recorded (waiting for a batch, a sleep, a long call into C) is not
profiler overhead and stays. If the device limits the step, all this matters little.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boundby.model import PYTHON_FRAMES, HostKind, Ints, Timeline
from boundby.model.assumptions.host import (
    LAUNCH_NS,
    PROFILED_OPERATOR_NS,
    PROFILED_PYTHON_NS,
    PROFILER_COST_FACTOR,
    SPARSE_EVENTS_NS,
    UNEXPLAINED_SHARE,
)
from boundby.step.host_intervals import HostIntervals
from boundby.step.simulator import LaunchSequence

Floats = npt.NDArray[np.float64]

# The step is shortest if the profiler cost most.
_SCENARIOS = tuple(zip(PROFILER_COST_FACTOR.high_to_low, LAUNCH_NS.low_to_high, strict=True))
# Compiler-generated code and its launcher only launch kernels; under a profiler they also describe
# each launch to it.
_GENERATED = re.compile(
    r"torchinductor/|(?:^|/)[a-z2-7]{2}/c[a-z2-7]{50,}\.py\(|_inductor/runtime/triton_heuristics\.py"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRange:
    """The launches with the possible host times without a profiler."""

    low: LaunchSequence
    expected: LaunchSequence
    high: LaunchSequence


def without_profiler(
    timeline: Timeline, launches: LaunchSequence, where: HostIntervals
) -> HostRange:
    """The range of the host's times."""
    edges = _edges(timeline, launches)
    events, costs = _events(timeline, edges)
    issues = np.append(np.diff(launches.first) > 0, False)
    # The last entry is the host time after the last action.
    took = np.append(launches.host_ns, launches.after_ns)
    data_wait = np.append(launches.data_wait_ns, 0.0)
    generated = _in_generated(timeline, where, edges)

    def parts(cost: float, launch_ns: float) -> tuple[Floats, Floats, Floats]:
        """The time around events, without the profiler and with it, and all other time."""
        described = np.clip(generated - issues * launch_ns, 0.0, took - data_wait)
        dense = np.minimum(took - data_wait - described, (events + 1) * SPARSE_EVENTS_NS.value)
        own = np.maximum(dense - cost * costs, UNEXPLAINED_SHARE.value * dense)
        return own, dense, took - described - dense

    def sequence(own: Floats, rest: Floats) -> LaunchSequence:
        host_ns = rest + own
        return replace(launches, host_ns=host_ns[:-1], after_ns=float(host_ns[-1]))

    (low, _, low_rest), (own, most, rest), (high, _, high_rest) = (
        parts(cost, launch_ns) for cost, launch_ns in _SCENARIOS
    )
    total = np.sqrt(own.sum() * issues.sum() * LAUNCH_NS.value)
    total = min(max(total, float(low.sum())), float(high.sum()))
    return HostRange(
        low=sequence(low, low_rest),
        expected=sequence(_scaled_to(own, total, most), rest),
        high=sequence(high, high_rest),
    )


def _scaled_to(host_ns: Floats, total_ns: float, most_ns: Floats) -> Floats:
    factor = total_ns / max(float(host_ns.sum()), 1.0)
    scaled: Floats = np.minimum(host_ns * factor, most_ns)
    return scaled


def _edges(timeline: Timeline, launches: LaunchSequence) -> Ints:
    """When each host action begins, and the last ends, as in the launch sequence."""
    host = timeline.host
    ends = (host.start_ns + host.duration_ns)[launches.rows]
    start = min(timeline.start_ns, int(host.start_ns.min()) if len(host) else 0)
    last = np.iinfo(np.int64).max
    return np.maximum.accumulate(np.concatenate([[start], ends, [last]]).astype(np.int64))


def _events(timeline: Timeline, edges: Ints) -> tuple[Floats, Floats]:
    """The number of events that the profiler recorded between the edges, and their usual cost."""
    host = timeline.host
    is_python = np.isin(host.kind, (*PYTHON_FRAMES, HostKind.DATA))
    is_operator = np.isin(host.kind, (HostKind.OP, HostKind.ANNOTATION))
    python, operators = (
        np.diff(np.searchsorted(np.sort(host.start_ns[kind]), edges)).astype(np.float64)
        for kind in (is_python, is_operator)
    )
    return (
        python + operators,
        python * PROFILED_PYTHON_NS.value + operators * PROFILED_OPERATOR_NS.value,
    )


def _in_generated(timeline: Timeline, where: HostIntervals, edges: Ints) -> Floats:
    """The time in generated code between the edges."""
    generated = np.array([bool(_GENERATED.search(name)) for name in timeline.names] or [False])
    generated &= np.array([not name.startswith("triton_") for name in timeline.names] or [False])
    python = np.isin(timeline.host.kind, PYTHON_FRAMES) & generated[timeline.host.name]
    in_generated = np.flatnonzero(np.append(python, False)[where.row])
    lengths = (where.end_ns - where.start_ns)[in_generated].astype(np.float64)
    middle = (where.end_ns[in_generated] + where.start_ns[in_generated]) // 2
    at = np.searchsorted(edges, middle, side="right") - 1
    inside = (at >= 0) & (at < len(edges) - 1)
    total: Floats = np.bincount(
        at[inside], weights=lengths[inside], minlength=len(edges) - 1
    ).astype(np.float64)
    return total
