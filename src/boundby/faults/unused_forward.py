"""A forward whose result nothing reads.

What it looks for
    Calls of a model in the step whose result is dropped, or bound to names that no code of the
    function (of the file, for a script's own names) reads, and that no backward passes: what is
    left of an experiment, a warm-up inside the loop, features of a batch that is augmented later.

Why it costs time
    The forward is computed for nothing, and its graph recorded.

What to change
    Remove the call.

When it does not help
    When the call is made for what it changes: running statistics of a batch norm, a file, a
    counter.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.step.model import Edit, StepView
from boundby.step.rows import rows_of_calls, without_rows


def detect(step: StepView) -> Detection | None:
    found = step.evidence.unread_results
    rows = rows_of_calls(step, (one.call for one in found))
    if not rows.any():
        return None
    changes = any(one.changes for one in found)
    return Detection(
        low=Edit() if changes else without_rows(step, rows, 0.1),
        expected=without_rows(step, rows),
        high=without_rows(step, rows),
        where=list(dict.fromkeys(line for one in found for line in one.call.where)),
        change="# remove the call: nothing reads its result",
        assumes="the call is not made for the running statistics that it updates"
        if changes
        else "the call is made for its result alone",
    )


FAULT = Fault(
    id="unused-forward",
    title="The result of a forward is not used",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
    excludes=("no-grad-missing", "repeated-forward"),
)
