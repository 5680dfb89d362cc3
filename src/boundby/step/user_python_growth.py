"""How the script's own Python grows with the batch, and whether samples come from model calls."""

from __future__ import annotations

import numpy as np

from boundby.model import HostKind, Ints, Phase, Timeline
from boundby.model.assumptions.host import ROLLOUT_CALLS
from boundby.model.intervals import union
from boundby.step.model import HostTime, StepView
from boundby.step.nesting import nearest
from boundby.step.sample_loops import dispatch_ns, find_sample_loops
from boundby.step.user_python import in_stretches, stretches

_MODULE = "nn.Module: "
_READ = ("aten::item", "aten::_local_scalar_dense")


def growing_ns(step: StepView, *, growth: float | None) -> HostTime:
    """Clean host time before each action, and after the last, that is proportional to the batch.

    `growth` is the share of the script's own time that grows; None: the likely share, all time in
    loops and half of the rest. On a CPU all of it is after the last, and waiting for batches, which
    are made of samples, grows in any case.
    """
    timeline, host = step.timeline, step.timeline.host
    intervals = step.memoised(stretches)
    weight = [
        (1.0 if interval.loops else 0.5) if growth is None else growth for interval in intervals
    ]
    if step.device == "cpu":
        worked = host.kind == HostKind.OP
        begins, ends = union(host.start_ns[worked], host.duration_ns[worked])
        loaded = sum(interval.ns for interval in intervals if interval.loads)
        profiled = max(1.0, timeline.wall_ns - float((ends - begins).sum()) - loaded)
        eager = step.machine.overheads.eager_op_ns or 0.0
        operators = sum(
            step.cpu_contention * record.exposed_ns + eager for record in step.op_records
        )
        waited = _for_samples(step)
        clean = max(0.0, step.wall_ns - operators - waited)
        growing = sum(
            interval.ns * part
            for interval, part in zip(intervals, weight, strict=True)
            if not interval.loads
        )
        python_ns = clean * min(1.0, growing / profiled) + dispatch_ns(
            step, find_sample_loops(step)
        )
        return HostTime(after_ns=min(step.wall_ns, waited + python_ns))
    launches = step.launches
    own_ns, since = in_stretches(launches, timeline, intervals, weight)
    shares = np.minimum(1.0, own_ns / since)
    looped = [index for loop in find_sample_loops(step) for index in loop.op_records]
    shares[step.actions_of(looped)] = 1.0
    return HostTime(
        before_ns=launches.host_ns * shares[:-1], after_ns=launches.after_ns * float(shares[-1])
    )


def _for_samples(step: StepView) -> float:
    """The time on a CPU for making batches, in this process or in workers that may have used its
    core."""
    return step.data_wait.after_ns + step.wall_ns * step.host_counters.worker_cpu_share


def rolls_out(step: StepView) -> bool:
    """Whether a training step calls a model many times to make the samples that it trains on.

    The calls are without gradients, or all before one backward, and the script reads a result
    before the next call, such as an action. More samples then mean more calls.
    """
    timeline, host = step.timeline, step.timeline.host
    forward = np.unique(host.forward[host.forward >= 0])
    named = np.array([name.startswith(_MODULE) for name in timeline.names] or [False])
    module = (host.kind == HostKind.PYTHON) & named[host.name]
    if not len(forward) or not module.any():
        return False
    around = nearest(host.parent, module)
    outermost = module & ((host.parent < 0) | (around[host.parent] < 0))
    trained = nearest(host.parent, outermost)[forward]
    evaluated = outermost.copy()
    evaluated[trained[trained >= 0]] = False
    if evaluated.any() and np.bincount(host.name[evaluated]).max() >= ROLLOUT_CALLS.value:
        return True
    return _acts(timeline, np.flatnonzero(outermost))


def _acts(timeline: Timeline, calls: Ints) -> bool:
    """Whether the script reads a value after most of these calls, with no backward in between."""
    host = timeline.host
    read = np.array([name in _READ for name in timeline.names] or [False])[host.name]
    reads = np.sort(host.start_ns[read])
    backward = np.sort(host.start_ns[host.phase == Phase.BACKWARD])
    starts = np.sort(host.start_ns[calls])
    between = np.diff(np.searchsorted(reads, starts)) > 0
    between &= np.diff(np.searchsorted(backward, starts)) == 0
    return int(between.sum()) >= ROLLOUT_CALLS.value
