"""Predictions as ranges: over the scenarios of an edit, and over assumptions about the host.

Several models of one step differ in the speed of its host without a profiler, the likeliest first.
"""

from __future__ import annotations

from collections.abc import Sequence

from boundby.model.estimate import Estimate
from boundby.step.model import Edit, StepModel

# Edits with the lowest, the expected and the highest saving.
Scenarios = tuple[Edit, Edit, Edit]


def predict_saving(edits: Sequence[tuple[StepModel, Scenarios]], likeliest: StepModel) -> Estimate:
    """The saving of edits in several models of one step, in ns of the clean step.

    If the likeliest model does not show the fault, the expected saving is zero.
    """
    savings = [
        max(0.0, wall_of(step.base_ns - step.evaluate(edit), step, likeliest))
        for step, scenarios in edits
        for edit in scenarios
    ]
    if edits[0][0] is not likeliest:
        return Estimate(low=0.0, expected=0.0, high=max(savings))
    return Estimate(low=min(savings), expected=savings[1], high=max(savings))


def saving_of(
    before: Sequence[float], after: Sequence[float], likeliest: int, *, known: bool = True
) -> Estimate:
    """The saving from the times of several models before and after.

    Each is compared with the unedited step of the same model: a slower host is slower in both. If
    the clean step's time is known, each is compared with that as well, because the host's speed may
    differ between the two.
    """
    savings = [ns_before - ns_after for ns_before, ns_after in zip(before, after, strict=True)]
    savings += [before[likeliest] - other for other in after if known]
    expected = before[likeliest] - after[likeliest]
    return Estimate(low=min(savings), expected=expected, high=max(savings))


def is_known(steps: Sequence[StepModel]) -> bool:
    """Whether the clean step's time is known: then it is the same in all models."""
    return len({step.wall_ns for step in steps}) == 1


def wall_of(evaluated_ns: float, step: StepModel, likeliest: StepModel) -> float:
    """A simulated time as a time of the clean step, in one of several models.

    If the clean step's time is known, it is the same in all models, and only the host's part in the
    edited step differs. In a trace, the step's own time is an assumption in each model.
    """
    is_measured = is_known([step, likeliest])
    return step.wall_ns * evaluated_ns / (likeliest if is_measured else step).base_ns
