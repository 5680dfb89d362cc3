"""Python's garbage collector runs inside the step.

What it looks for
    Garbage collection time during the clean steps, as reported by the interpreter. In a trace file:
    calls of `gc.collect()` in the step.

Why it costs time
    A full collection visits every object of the process, which takes hundreds of milliseconds with
    large libraries and datasets loaded, and blocks all Python threads. The device becomes idle once
    its queue is empty. In a job with many ranks all ranks wait for the one that collects.

What to change
    Call `gc.collect(); gc.freeze()` once everything is built, so that later collections visit only
    newer objects. Or call `gc.disable()` and then `gc.collect()` every few hundred steps, on all
    ranks at the same step. Remove a `gc.collect()` that the loop calls in every step.

When it does not help
    When the device is far behind the host and has work during the pause. Objects in reference
    cycles that hold tensors are freed only by the collector: without it memory may grow.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import HostKind, units
from boundby.model.assumptions.program_savings import FROZEN_COLLECTOR_LEFT, UNCALLED_COLLECTOR_LEFT
from boundby.model.estimate import Estimate
from boundby.step.model import StepView
from boundby.step.pauses import shares

_CALL = "<built-in function collect>"


def detect(step: StepView) -> Detection | None:
    calls = _calls(step)
    pauses, steps = _pauses(step)
    if not pauses and len(calls):
        # A trace shows only collections that the script calls, and the profiler hardly slows those.
        pauses = [float(step.timeline.host.duration_ns[calls].sum())]
        steps = [float(step.timeline.wall_ns)]
    if not any(pauses):
        return None
    low, expected, high = shares(pauses, steps)
    lost_ns = step.base_ns * step.stall_sensitivity(max(pauses))
    paused = sum(ns > 0 for ns in pauses)
    worst_left, expected_left = (
        (UNCALLED_COLLECTOR_LEFT.high, UNCALLED_COLLECTOR_LEFT.value)
        if len(calls)
        else (FROZEN_COLLECTOR_LEFT.high, FROZEN_COLLECTOR_LEFT.value)
    )
    return Detection.of_saving(
        Estimate(
            low=lost_ns * low * (1 - worst_left),
            expected=lost_ns * expected * (1 - expected_left),
            high=lost_ns * high,
        ),
        where=_lines(step, calls),
        change="gc.disable()  # and gc.collect() every few hundred steps, not in each"
        if len(calls)
        else "gc.collect(); gc.freeze()  # once, before the loop",
        assumes="garbage can be collected later, and without the change steps continue to pause: "
        f"{paused} of {len(pauses)} did, for {units.time(max(pauses))} at most",
    )


def _pauses(step: StepView) -> tuple[list[float], list[float]]:
    """Collection time in each clean step, without the compiler's own collections."""
    seen = step.host_counters
    if not len(seen.collector_ns) == len(seen.compiler_ns) == len(seen.steps_ns):
        return [], []
    rows = zip(seen.collector_ns, seen.compiler_ns, seen.steps_ns, strict=True)
    kept = [(pause, wall) for pause, compiled, wall in rows if not compiled]
    return [pause for pause, _ in kept], [wall for _, wall in kept]


def _calls(step: StepView) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    host, names = step.timeline.host, step.timeline.names
    named = np.array([name == _CALL for name in names] or [False])
    return np.flatnonzero(named[host.name] & (host.kind == HostKind.PYTHON))


def _lines(step: StepView, calls: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    """The lines that call the collector; the line at which it starts by itself means nothing."""
    timeline = step.timeline
    known = step.host_counters.collected_at
    if len(calls) and known and known[0][0]:
        return ["{}:{}".format(*known[0])]
    found = dict.fromkeys(int(source) for source in timeline.host.source[calls])
    return [timeline.sources[s] for s in found if 0 <= s < len(timeline.sources)]


FAULT = Fault(
    id="collector-pauses",
    title="Garbage collector pauses the step",
    kind="tuning",
    group="overhead",
    stage=Stage.HOST,
    frameworks=("torch", "jax"),
    document=__doc__,
    detect=detect,
)
