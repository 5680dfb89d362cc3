"""A backward computes gradients that nothing uses.

What it looks for
    Parameters that receive a gradient which no optimizer uses: those of a teacher or a frozen part
    that belong to no optimizer and do not change, and those whose gradient is cleared before their
    optimizer steps, as of a generator when the discriminator's loss is not detached. Counted are
    the autograd nodes that lead to such parameters alone.

Why it costs time
    The backward through these parts costs about twice their forward.

What to change
    `fake.detach()` for the discriminator's loss, `with torch.no_grad():` around a teacher,
    `part.requires_grad_(False)` for what is frozen.

When it does not help
    When the gradients are read by other means, such as a hook or a log.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import REPEATED_WORK_LEFT
from boundby.step.model import StepView
from boundby.step.rows import forward_lines, rows_of_nodes, without_rows

_MOST_NAMES = 4  # display limit


def detect(step: StepView) -> Detection | None:
    found = step.evidence.unused_gradients
    rows = np.zeros(len(step.timeline.host), np.bool_)
    edges = rows.copy()
    for one in found:
        unused = rows_of_nodes(step, one.nodes, one.total)
        beside = rows_of_nodes(step, one.edges, one.total)
        if unused is not None and beside is not None:
            rows |= unused
            edges |= beside
    if not rows.any():
        return None
    where = [*forward_lines(step, rows)[:3], *forward_lines(step, edges)[:3]]
    where += [line for one in found for line in one.where[:1]]
    unowned = any(one.unowned for one in found)
    names = list(dict.fromkeys(name for one in found if one.unowned for name in one.parts))
    which = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    return Detection(
        low=without_rows(step, rows, REPEATED_WORK_LEFT.high),
        expected=without_rows(step, rows),
        high=without_rows(step, rows),
        where=list(dict.fromkeys(where)),
        change="with torch.no_grad():  # or requires_grad_(False): no optimizer has "
        + (which or "these parameters")
        if unowned
        else ".detach()  # what goes into this loss; the gradients are cleared unused",
        assumes="nothing else reads these gradients",
    )


FAULT = Fault(
    id="unused-gradients",
    title="Gradients are computed and never used",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
)
