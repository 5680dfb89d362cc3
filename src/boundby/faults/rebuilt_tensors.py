"""Tensors with the same values are made again in every step.

What it looks for
    Lines of the script that bind tensors or arrays whose values were the same in each of the steps
    that were checked, and that nothing changes afterwards: masks, schedules, constants from
    lists, tables, data moved to the device again. Functions of the script that return such tensors,
    with all that they run. Also lines and functions whose values differ between steps, if a step
    makes the same ones several times.

Why it costs time
    The operators, and often a Python loop over the values, run in every step for a result that is
    known before the first.

What to change
    Compute it once before the loop. In a module, `self.register_buffer("mask", mask)`.

When it does not help
    When the values depend on something that only changes later, such as the epoch.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import REPEATED_WORK_LEFT
from boundby.model.evidence import RebuiltTensor
from boundby.step.model import StepView
from boundby.step.nesting import Mask
from boundby.step.rows import rows_at, time_of_rows, without_rows

# Lines with a smaller share of the step are not named.
_COUNTS = 0.005
_MOST_LINES = 6  # display limit


def detect(step: StepView) -> Detection | None:
    times = {
        one.where: time_of_rows(step, rows_at(step, [one.where])) for one in step.evidence.rebuilt
    }
    ranked = sorted(times, key=lambda line: -times[line])
    lines = [line for line in ranked if times[line] >= _COUNTS * step.wall_ns]
    if not lines:
        return None
    known = {one.where: one for one in step.evidence.rebuilt}
    names = known[lines[0]].names
    always = rows_at(step, [line for line in lines if not known[line].once_a_step])
    for_all = [one for one in lines if known[one].once_a_step]
    once = list(_made_once(step, [known[one] for one in for_all], always))
    saved = sum((without_rows(step, rows, left) for rows, left in once), without_rows(step, always))
    # What calls a function that makes them is where its result is to be kept.
    places = dict.fromkeys(place for line in lines for place in (line, known[line].called_at))
    return Detection(
        low=sum(
            (without_rows(step, rows, max(left, REPEATED_WORK_LEFT.high)) for rows, left in once),
            without_rows(step, always, REPEATED_WORK_LEFT.high),
        ),
        expected=saved,
        high=saved,
        where=[place for place in places if place][:_MOST_LINES],
        change=f"# once, before the loop or in __init__: {', '.join(names[:3])}"
        if lines[0] not in for_all
        else f"# once in a step, or behind functools.cache: {', '.join(names[:3])}",
        assumes="the values are the same in all steps, as in the steps checked"
        if lines[0] not in for_all
        else f"all {known[lines[0]].times} calls of a step give the same, as in the steps checked",
    )


def _made_once(
    step: StepView, made: Sequence[RebuiltTensor], others: Mask
) -> Iterator[tuple[Mask, float]]:
    """What is made several times in a step, and the share of it that is left if it is made once."""
    known = others
    for times in sorted({one.times for one in made}):
        rows = rows_at(step, [one.where for one in made if one.times == times]) & ~known
        known = known | rows
        yield rows, 1 / times


FAULT = Fault(
    id="rebuilt-tensors",
    title="The same tensors are made in every step",
    kind="mistake",
    group="overhead",
    excludes=("python-in-step",),
    document=__doc__,
    detect=detect,
    yields_to=("modules-made",),
)
