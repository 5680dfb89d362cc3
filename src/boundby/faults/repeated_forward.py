"""A model is called again on the inputs that it was called on before.

What it looks for
    Two calls of one module in a step whose input values are the same. The second one is redundant
    if its result is the same, or if it is used for no gradient, as for a metric: the first call's
    result can be used instead.

Why it costs time
    A forward, and often its backward, is computed twice.

What to change
    Keep the first result: `logits = model(x)`, then `logits.detach()` for metrics. In a pair of
    networks, generate once and use `fake.detach()` for the first loss.

When it does not help
    When the second call must use the weights after the update, or another dropout mask.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import REPEATED_CALL_LEFT
from boundby.step.model import Edit, StepView
from boundby.step.rows import rows_of_calls, without_rows


def detect(step: StepView) -> Detection | None:
    found = step.evidence.repeated
    if not found:
        return None
    rows = rows_of_calls(step, (one.call for one in found))
    if not rows.any():
        return None
    certain = all(one.same for one in found)
    where = [line for one in found for line in one.call.where]
    where += [line for one in found for line in one.first.where]
    return Detection(
        low=without_rows(step, rows, REPEATED_CALL_LEFT.high) if certain else Edit(),
        expected=without_rows(step, rows),
        high=without_rows(step, rows),
        where=list(dict.fromkeys(where)),
        change=f"# use the result of the call at {found[0].first.where[0]} again",
        assumes=_assumed(found[0].same, found[0].updated),
    )


def _assumed(same: bool, updated: bool) -> str:
    if same:
        return "the two calls gave the same values in the steps that were checked"
    if updated:
        return "the result from before the update is good enough: it needs no gradient"
    return "a second dropout mask is not needed: the second result needs no gradient"


FAULT = Fault(
    id="repeated-forward",
    title="The same forward runs twice",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
)
