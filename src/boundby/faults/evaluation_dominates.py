"""Evaluation takes a large part of the run.

What it looks for
    Rows of calls without gradients between training steps, timed over the run, that take at least a
    quarter of the time that goes into training and evaluation; one twentieth, if they follow every
    few steps.

Why it costs time
    Evaluation after every few steps, or on far more samples than needed to see a trend, competes
    with training for the same device. The trained weights are the same without it.

What to change
    Evaluate less often, or on a fixed part of the data, and on all of it at the end. Evaluate under
    `torch.inference_mode()` with a larger batch than in training: no gradients are kept.

When it does not help
    When each evaluation decides what happens next, as in early stopping with little patience.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.detection import STEPS_AN_EVALUATION, USUAL_EVALUATION
from boundby.model.estimate import Estimate
from boundby.model.run import RunParts
from boundby.step.model import StepView

# The share of training and evaluation together from which on it is reported.
_LEAST_SHARE = 0.25
# The same where it follows every few steps: fewer than the second number.
_LEAST_OFTEN, _OFTEN = 0.05, 5


def detect(step: StepView) -> Detection | None:
    run = step.run
    train, found = (run.part("train"), run.part("eval")) if run is not None else (None, None)
    if run is None or train is None or found is None or not found.count:
        return None
    between = train.count / found.count
    least = _LEAST_OFTEN if between < _OFTEN else _LEAST_SHARE
    if found.ns < least * (train.ns + found.ns):
        return None
    left_ns = min(found.ns, USUAL_EVALUATION.value * train.ns)
    if between < _OFTEN:
        left_ns = min(left_ns, found.ns * between / STEPS_AN_EVALUATION.value)
    usual_ns = found.ns - left_ns
    times = max(2, round(found.ns / left_ns))
    each = found.ns / found.count
    return Detection.of_run(
        Estimate(low=usual_ns / 2, expected=usual_ns, high=found.ns),
        where=list(found.details),
        change=f"# evaluate {times} times less often, or on 1 of {times} batches of the data",
        assumes="an evaluation in every hundred steps is enough"
        if between < _OFTEN
        else "evaluation may take 10% of the training time",
        evidence=_words(run, each),
    )


def _words(run: RunParts, each_ns: float) -> str:
    train, found = run.part("train"), run.part("eval")
    assert train is not None and found is not None
    often = "once" if found.count == 1 else f"{found.count} times"
    return (
        f"it ran {often} in {train.count} training steps, {each_ns / 1e9:.2g} s each: "
        f"{found.ns / (train.ns + found.ns):.0%} of training and evaluation"
    )


FAULT = Fault.of_run(
    id="evaluation-dominates",
    title="Evaluation takes much of the run",
    document=__doc__,
    detect=detect,
)
