"""The kind of a step."""

from __future__ import annotations

from typing import Literal

from boundby.model.record import Record

Mode = Literal["train", "forward", "step"]


class StepUnit(Record, frozen=True, kw_only=True):
    """The contents of one step, in most steps of its kind; 0 if nothing of it is seen.

    `calls` of outermost modules with gradients, `evaluations` without.
    """

    calls: int = 0
    backwards: int = 0
    updates: int = 0
    evaluations: int = 0


class StepKind(Record, frozen=True, kw_only=True):
    """A kind of step.

    `label` is for display: "train 16x96", "ProfilerStep#3". `series` is the label without the
    number of the step. `shape` is that of the model's first tensor argument, `samples` the number
    of samples in it. "step": neither training nor a forward pass, or unknown.
    """

    label: str
    series: str
    mode: Mode = "step"
    shape: tuple[int, ...] | None = None
    samples: int | None = None
    unit: StepUnit | None = None
