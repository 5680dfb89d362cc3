"""Weights or other state are copied in every step.

What it looks for
    `copy.deepcopy` and `load_state_dict` in the step, with the line of the script that led to it:
    of a model, its state, an optimizer or a batch. Averages that are loaded beside the loop that
    makes them are `looped-parameters`.

Why it costs time
    Each tensor is allocated and copied, and Python walks through every object around it. A copy of
    a state dict reads and writes all weights.

What to change
    Copy when there is something to keep: `if loss < best: ...`, and compare after an evaluation,
    not after a batch. Averages of weights are updated in place: `torch._foreach_lerp_`.

When it does not help
    When the copy of each step is used, as in a line search or in meta-learning. A target network
    is copied every few hundred steps, or follows slowly.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re

from boundby.faults.fault import Detection, Fault
from boundby.faults.looped_parameters import state_of_loops
from boundby.model.assumptions.program_savings import STATE_COPIES_LEFT
from boundby.step.frames import frames_named, times_by_line
from boundby.step.model import StepView
from boundby.step.rows import without_rows

_COPIES = re.compile(
    r"(?:^|/)copy\.py\(\d+\): deepcopy$|(?:^|/)torch/nn/modules/module\.py\(\d+\): load_state_dict$"
)
_COUNTS = 0.005  # share of the step; less is not reported
_MOST_LINES = 4  # display limit


def detect(step: StepView) -> Detection | None:
    copies = frames_named(step, _COPIES) & ~state_of_loops(step)
    lines = [
        line for line, ns in times_by_line(step, copies).items() if ns >= _COUNTS * step.wall_ns
    ]
    if not lines:
        return None
    rows = step.inside(copies)
    return Detection(
        low=without_rows(step, rows, STATE_COPIES_LEFT.high),
        expected=without_rows(step, rows, STATE_COPIES_LEFT.value),
        high=without_rows(step, rows),
        where=lines[:_MOST_LINES],
        change="if step % 500 == 0: ...  # what copies the state",
        assumes="a copy in every few hundred steps, or after an evaluation, is enough",
    )


FAULT = Fault(
    id="copied-state",
    title="State is copied in every step",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    excludes=("python-in-step",),
)
