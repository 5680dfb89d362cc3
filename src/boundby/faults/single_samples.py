"""Samples of one batch go through the model one at a time.

What it looks for
    Without a backward, calls of a model whose only input is one row of a larger tensor, each call
    another row of the same tensor; and calls with one row in a comprehension or a loop over a list,
    of which no round needs the result of another: the batch exists, and is taken apart.

Why it costs time
    Host time and the traffic of the weights are paid for every sample instead of once for all.

What to change
    `model(batch)`, and take the results apart afterwards.

When it does not help
    When the activations of all samples together do not fit into memory: then a few at a time. When
    a sample's work decides whether the next one is needed.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.batch_too_small import larger
from boundby.faults.fault import Detection, Fault
from boundby.model.estimate import Estimate
from boundby.step.batch_growth import FAST, LIKELY, SLOW
from boundby.step.model import StepModel

_MOST_SAMPLES = 64  # together; beyond that the prediction changes little


def detect(step: StepModel) -> Detection | None:
    found = step.evidence.single_samples
    if found is None or step.evidence.has_backward or not step.op_records or step.base_ns <= 0:
        return None
    samples = min(found.samples, _MOST_SAMPLES)
    each_ns = [larger(step, samples, growth) / samples for growth in (SLOW, LIKELY, FAST)]
    low, expected, high = (max(0.0, step.base_ns - ns) for ns in each_ns)
    return Detection.of_saving(
        Estimate(low=low, expected=expected, high=high),
        where=found.where,
        change=f"model(batch)  # all {found.samples} samples in one call",
        assumes="the activations of all of them fit into memory",
        evidence=f"each call gets one of {found.samples} samples",
    )


FAULT = Fault(
    id="single-samples",
    title="Samples go through the model one at a time",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    combines=False,
    excludes=("batch-too-small",),
    before=("batch-too-small",),
)
