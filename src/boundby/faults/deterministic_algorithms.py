"""Deterministic algorithms are required.

What it looks for
    `torch.use_deterministic_algorithms(True)`, as torch itself reports, and what it adds to a step:
    new memory is filled before it is used, and slower kernels are chosen.

Why it costs time
    With `torch.utils.deterministic.fill_uninitialized_memory`, which is on by default, every new
    tensor is written once more. Scattering, indexing and some convolutions use slower algorithms.

What to change
    `torch.use_deterministic_algorithms(False)`, or keep it and set
    `torch.utils.deterministic.fill_uninitialized_memory = False`.

When it does not help
    When results must be the same bit for bit.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.fixes import debug_settings
from boundby.model.assumptions.program_savings import SETTING_LEFT
from boundby.step.model import StepView
from boundby.step.nesting import nearest
from boundby.step.rows import without_rows

_MAKES = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::resize_")


def detect(step: StepView) -> Detection | None:
    settings = step.evidence.settings
    if not settings.fills_memory:
        return None
    host, names = step.timeline.host, step.timeline.names
    makes = np.array([name.startswith(_MAKES) for name in names] or [False])
    fills = np.array([name == "aten::fill_" for name in names] or [False])
    parents = np.append(host.parent, -1)
    inside = nearest(host.parent, makes[host.name]) >= 0
    rows = step.inside(fills[host.name] & inside & (parents[:-1] >= 0))
    if not rows.any():
        return None
    return Detection(
        low=without_rows(step, rows, SETTING_LEFT.high),
        expected=without_rows(step, rows),
        high=without_rows(step, rows),
        where=settings.set_at
        or step.lines(o for o in step.op_records if o.row >= 0 and rows[o.row])[:3],
        change="torch.utils.deterministic.fill_uninitialized_memory = False",
        assumes="results need not be the same bit for bit, or no operator reads unwritten memory",
    )


FAULT = Fault(
    id="deterministic-algorithms",
    title="Deterministic algorithms",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    fixes=(debug_settings.UNFILLED_MEMORY, debug_settings.NOT_DETERMINISTIC),
)
