"""Writing checkpoints takes a large part of the run.

What it looks for
    Time inside `torch.save`, `safetensors` and the like, over the run, of at least a twentieth of
    the training time.

Why it costs time
    A checkpoint copies the weights (and, for Adam, twice as much optimizer state) to the host,
    serialises them and waits for the disk. Meanwhile the device is idle.

What to change
    Write one every some minutes, not every few steps. Save the best weights only when they
    improved, or copy them to the host and write them in a thread.

When it does not help
    When the job may be ended at any time, and repeating the steps since the last checkpoint would
    cost more.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.detection import USUAL_CHECKPOINTS
from boundby.model.estimate import Estimate
from boundby.step.model import StepView

_LEAST_SHARE = 0.05  # of the run; less is not reported


def detect(step: StepView) -> Detection | None:
    run = step.run
    train, found = (run.part("train"), run.part("checkpoint")) if run is not None else (None, None)
    if train is None or found is None or found.ns < _LEAST_SHARE * (train.ns + found.ns):
        return None
    rarer_ns = max(found.ns - USUAL_CHECKPOINTS.value * train.ns, 0.0)
    times = max(2, round(found.ns / (USUAL_CHECKPOINTS.value * train.ns)))
    each = found.ns / max(1, found.count)
    return Detection.of_run(
        Estimate(low=rarer_ns / 2, expected=rarer_ns, high=found.ns),
        where=list(found.details),
        change=f"# write a checkpoint {times} times less often",
        assumes="checkpoints may take 1% of the training time",
        evidence=f"{found.count} written in {train.count} training steps, {each / 1e6:.3g} ms each",
    )


FAULT = Fault.of_run(
    id="checkpoint-dominates",
    title="Checkpoints take much of the run",
    document=__doc__,
    detect=detect,
)
