"""Two backward passes of one step go through the same graph.

What it looks for
    A backward with `retain_graph=True`, and a later one of the same step that passes through part
    of its graph again, while both add to the same gradients: no optimizer step and no clearing
    between them.

Why it costs time
    The shared part of the network is differentiated twice. Gradients are sums: one backward of the
    sum of the losses gives the same.

What to change
    `(loss_1 + weight * loss_2).backward()`.

When it does not help
    When the gradients of each loss are looked at or changed before they are added, as to balance
    tasks.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import REPEATED_WORK_LEFT
from boundby.step.model import StepView
from boundby.step.rows import again_in_nodes, without_rows


def detect(step: StepView) -> Detection | None:
    found = step.evidence.repeated_backwards
    rows = np.zeros(len(step.timeline.host), np.bool_)
    for one in found:
        again = again_in_nodes(step, one.nodes, one.total)
        if again is not None:
            rows |= again
    if not rows.any():
        return None
    where = [line for one in found for line in (*one.where[:1], *one.first[:1])]
    return Detection(
        low=without_rows(step, rows, REPEATED_WORK_LEFT.high),
        expected=without_rows(step, rows),
        high=without_rows(step, rows),
        where=list(dict.fromkeys(where)),
        change="(loss_1 + loss_2).backward()  # one pass through the part that they share",
        assumes="nothing reads the gradients between the two",
    )


FAULT = Fault(
    id="repeated-backward",
    title="Two backwards pass through the same graph",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
)
