"""Waiting OpenMP threads of a CPU step keep their cores busy.

What it looks for
    A helper thread that never sleeps during the clean steps, and time in which this thread or the
    main thread was ready to run but had no core, while the work needs a small part of the step
    time. Linux counts both for every thread; on other systems nothing is reported.

Why it costs time
    OpenMP threads do not sleep between two operators. They spin in order to start quickly. With
    fewer free cores than threads (another process, a container limit, two threads pinned to one
    core) the spinning thread occupies the core that the working thread needs, until the scheduler
    preempts it some milliseconds later, at every parallel region. A step of 3 ms took 104 ms this
    way; another of 8 ms took 501 and 1,321 ms.

What to change
    Set `OMP_WAIT_POLICY=passive` before the process starts (`KMP_BLOCKTIME=0` with Intel's OpenMP).
    Or use as many threads as there are free cores, `OMP_NUM_THREADS=1` for small models.

When it does not help
    On a machine with a free core for each thread: there spinning costs only power, and sleeping
    threads take longer to wake. The same script alone on the machine may need no change.

Measured on
    A regression on two cores that other processes kept busy (11 runnable): 661 ms a step and 107 ms
    of CPU time with two threads, 80 ms and 8 with `OMP_WAIT_POLICY=passive`, 52 ms and 6 with one
    thread.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault, Stage
from boundby.fixes import threads
from boundby.model.assumptions.host import CPU_QUIET, OWN_WORK_SHARE, SPINNING_SHARE
from boundby.model.assumptions.program_savings import DELAYS_OF_OTHERS_LEFT
from boundby.model.estimate import Estimate
from boundby.model.host_counters import HostCounters
from boundby.step.model import StepView


def detect(step: StepView) -> Detection | None:
    seen = step.host_counters
    steps = len(seen.steps_ns)
    if not steps or seen.main is None or seen.busiest is None:
        return None
    awake = (seen.busiest.ran_ns + seen.busiest.delayed_ns) / max(seen.wall_ns, 1.0)
    main, other = _delays(seen)
    floor = sum(record.floor_ns or 0.0 for record in step.op_records)
    wall = step.wall_ns
    if (
        awake < SPINNING_SHARE.value
        or max(main, other) < CPU_QUIET.value
        or floor > OWN_WORK_SHARE.value * wall
    ):
        return None
    # The minimum for the work and its dispatch; all other time may be waiting, as far as any was
    # seen.
    needed = floor + len(step.op_records) * (step.machine.overheads.eager_op_ns or 0.0)
    most = min(max(0.0, wall - needed), (main + other) * wall)
    # Both delays may belong to the step, one after the other, or be the same; and while other
    # processes run, half of the delays attributed to them would have occurred anyway.
    theirs = min(1.0, (seen.others_ns or 0.0) / max(seen.wall_ns, 1.0) / (main + other))
    expected = min(most, max(main, other) * wall * (1 - DELAYS_OF_OTHERS_LEFT.value * theirs))
    least = min(expected, (1 - DELAYS_OF_OTHERS_LEFT.value) * main * wall * (1 - theirs))
    return Detection.of_saving(
        Estimate(low=least, expected=expected, high=most),
        where=[],
        change="export OMP_WAIT_POLICY=passive  # before it is started; or OMP_NUM_THREADS=1",
        assumes=f"the step's thread and its busiest helper waited for a core ({main:.0%} and "
        f"{other:.0%} of the time) because of each other, not of other processes",
    )


def _delays(seen: HostCounters) -> tuple[float, float]:
    """The shares of the clean steps in which both threads were runnable and had no core."""
    assert seen.busiest is not None
    return seen.cpu_wait_share, min(1.0, seen.busiest.delayed_ns / max(seen.wall_ns, 1.0))


FAULT = Fault(
    id="openmp-spin",
    title="OpenMP threads spin and occupy cores",
    kind="tuning",
    group="overhead",
    devices=("cpu",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
    fixes=(
        threads.SLEEPING_THREADS,
        threads.ONE_THREAD,
    ),
)
