"""Worker processes of a DataLoader start again at every epoch.

What it looks for
    Time in which a loader with workers starts to iterate again, and waits for its first batch,
    after it did so once: the starts are timed over the run.

Why it costs time
    Without `persistent_workers` all workers end with the epoch. At the next one they are forked or
    spawned again (which imports the script's modules again), copy the dataset and begin with empty
    queues, while the device waits.

What to change
    `DataLoader(..., persistent_workers=True)`.

When it does not help
    With a single epoch, or when the dataset object is changed between epochs: persistent workers
    keep the copy that they started with.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import PERSISTENT_WORKERS_LEFT
from boundby.model.estimate import Estimate
from boundby.step.model import StepView

_LEAST_SHARE = 0.01  # of the run; less is not reported


def detect(step: StepView) -> Detection | None:
    run = step.run
    train, found = (run.part("train"), run.part("data_start")) if run is not None else (None, None)
    if train is None or found is None or found.repeated_ns < _LEAST_SHARE * train.ns:
        return None
    low, expected, high = (
        (1 - left) * found.repeated_ns for left in PERSISTENT_WORKERS_LEFT.high_to_low
    )
    return Detection.of_run(
        Estimate(low=low, expected=expected, high=high),
        where=list(found.details)[:1],
        change="DataLoader(..., persistent_workers=True)",
        assumes=f"persistent workers need {PERSISTENT_WORKERS_LEFT.value:.0%} of that time for "
        "their first batch",
        evidence=f"starting them again took {found.repeated_ns / 1e6:.3g} ms of the run so far",
    )


FAULT = Fault.of_run(
    id="workers-restarted",
    title="Data workers are restarted every epoch",
    document=__doc__,
    detect=detect,
)
