"""The optimizer steps several times on the same accumulated gradients.

What it looks for
    An optimizer that steps again on gradients that it has already used and that were only added
    to: they are cleared once for several steps.

Why it costs time
    Every step reads and writes all parameters, gradients and optimizer states. Under gradient
    accumulation one step for each cleared gradient is meant; the earlier ones also apply the same
    gradients again.

What to change
    Step where gradients are cleared: `if (i + 1) % accumulate == 0: optimizer.step()`.

When it does not help
    When the steps on partial sums are meant.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase
from boundby.step.model import StepView
from boundby.step.rows import without_rows


def detect(step: StepView) -> Detection | None:
    found = step.evidence.uncleared
    if found is None:
        return None
    host = step.timeline.host
    rows = step.inside(host.phase == Phase.OPTIMIZER)
    if not np.any(rows):
        return None
    left = 1 / found.steps_per_clear
    return Detection(
        low=without_rows(step, rows, (1 + left) / 2),
        expected=without_rows(step, rows, left),
        high=without_rows(step, rows, left),
        where=found.where[:2],
        change=f"if (i + 1) % {found.steps_per_clear:.0f} == 0: optimizer.step()",
        assumes=f"gradients are cleared once for {found.steps_per_clear:.0f} steps",
    )


FAULT = Fault(
    id="optimizer-too-often",
    title="The optimizer steps more often than gradients are cleared",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
)
