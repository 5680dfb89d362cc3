"""More threads than cores compute each operator.

What it looks for
    `torch.get_num_threads()` greater than the number of cores that the process may use.

Why it costs time
    Each parallel operator ends when its last thread has had a core. Threads that wait for one
    another hold the cores that the others need.

What to change
    Remove `torch.set_num_threads(...)` or `OMP_NUM_THREADS`, or set it to the number of cores.

When it does not help
    When operators are too small to be divided among threads.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.fixes import threads
from boundby.model.estimate import Estimate
from boundby.step.model import StepView


def detect(step: StepView) -> Detection | None:
    settings = step.evidence.settings
    threads, cores = settings.threads, settings.cores
    if not threads or not cores or threads <= cores:
        return None
    # The time without waits for data and for a core, which too many threads cause.
    spent = step.wall_ns - step.account.overhead.parts.get("data", 0.0)
    # With more threads than cores, the same work is at best as fast. Measured with two cores on
    # three models: 0.11 to 0.39 of the step with four threads, 0.70 to 0.88 with sixteen.
    lost = 1 - cores / threads
    return Detection.of_saving(
        Estimate(low=0.0, expected=lost**2 * spent, high=lost * spent),
        where=settings.set_at,
        change=f"torch.set_num_threads({cores})",
        assumes=f"{threads} threads share {cores} cores",
    )


FAULT = Fault(
    id="too-many-threads",
    title="More threads than cores",
    kind="mistake",
    group="overhead",
    devices=("cpu",),
    document=__doc__,
    detect=detect,
    fixes=(threads.AS_MANY_AS_CORES,),
)
