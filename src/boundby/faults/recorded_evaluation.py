"""Evaluation records an autograd graph that no backward uses.

What it looks for
    Calls of a model in evaluation mode between training steps, with gradients enabled, that no
    backward pass follows.

Why it costs time
    Each operator makes a node of the autograd graph and keeps its inputs until the result is
    dropped. Memory that the next operator could use again is held, and fast paths for inference,
    such as that of `nn.TransformerEncoderLayer`, are not taken. `model.eval()` changes dropout and
    batch norm; it does not switch gradients off.

What to change
    `with torch.no_grad():` around the evaluation, or `@torch.no_grad()` on its function.

When it does not help
    When a gradient of the result is computed later, as for saliency maps.

Measured on
    Six models on one CPU core, in turn: 18% and 20% (MLP and transformer of a few layers), 25%
    (`nn.TransformerEncoder`), 32% (LSTM) of the evaluation; nothing beyond noise for convolutions
    and large products.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import RECORDED_EVALUATION
from boundby.model.estimate import Estimate
from boundby.step.model import StepView


def detect(step: StepView) -> Detection | None:
    found = step.run.part("eval") if step.run is not None else None
    # If the evidence of a step shows it, `no-grad-missing` is reported.
    if found is None or not found.recorded_ns or step.evidence.unused_graphs:
        return None
    low, expected, high = (share * found.recorded_ns for share in RECORDED_EVALUATION.low_to_high)
    return Detection.of_run(
        Estimate(low=low, expected=expected, high=high),
        where=list(found.details),
        change="with torch.no_grad():  # around the evaluation",
        assumes="no gradient of the results is computed later",
        evidence=f"{found.recorded_ns / 1e9:.2g} s of evaluation with gradients enabled",
    )


FAULT = Fault.of_run(
    id="recorded-evaluation",
    title="Evaluation records gradients",
    document=__doc__,
    detect=detect,
)
