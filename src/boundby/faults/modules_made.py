"""Modules are made in every step.

What it looks for
    Constructors of `torch.nn` modules that run in the step, also inside a `forward`, with the line
    of the script that led to them.

Why it costs time
    A constructor allocates its weights and draws their values at random, which for a linear layer
    takes longer than its product with a small batch. Weights that are made in every step are also
    never trained: no optimizer has them.

What to change
    Make the module once, in `__init__` or before the loop, and call it in the step. For operations
    without weights use the functions of `torch.nn.functional`.

When it does not help
    When each step needs another model, as in a search for an architecture.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.step.frames import costly_lines, frames_named, times_by_line
from boundby.step.model import StepView
from boundby.step.nesting import Mask
from boundby.step.rows import without_rows

_MODULES = re.compile(r"(?:^|/)torch/nn/modules/\w+\.py\(\d+\): __init__$")
_CONSTRUCTORS = re.compile(r"\.py\(\d+\): __init__$")
_DRAWS = re.compile(r"(?:^|/)torch/nn/init\.py\(\d+\): ")
_MOST_LINES = 4  # display limit


def detect(step: StepView) -> Detection | None:
    made = _outermost(step)
    lines = costly_lines(step, times_by_line(step, made))
    if not lines:
        return None
    rows = step.inside(made)
    drawn = bool((frames_named(step, _DRAWS) & rows).any())
    return Detection(
        low=without_rows(step, rows, 0.1),
        expected=without_rows(step, rows),
        high=without_rows(step, rows),
        where=lines[:_MOST_LINES],
        change="# once, in __init__ or before the loop: self.layer = nn...",
        assumes="the same module serves all steps",
        evidence="their weights are new in every step, so that they are never trained"
        if drawn
        else "",
    )


def _outermost(step: StepView) -> Mask:
    """Rows of the constructors that the script calls: those of its own modules, with what these
    make, count once."""
    host = step.timeline.host
    constructors = frames_named(step, _CONSTRUCTORS)
    found = np.zeros(len(host), np.bool_)
    for row in np.flatnonzero(frames_named(step, _MODULES)).tolist():
        while (parent := int(host.parent[row])) >= 0 and constructors[parent]:
            row = parent
        found[row] = True
    return found


FAULT = Fault(
    id="modules-made",
    title="Modules are made in every step",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
)
