"""What to do about a step: findings, alone and together, larger batches, faster chips."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from boundby import remedies
from boundby.model.diagnosis import BatchRow, ChipRow, Finding, WhatIf
from boundby.picture import Picture
from boundby.remedies.at_the_roof import bigger_chips
from boundby.roofs.operators import Exercise

Timer = Callable[[Sequence[Exercise]], dict[Exercise, float]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What would fix a step, alone and together, and what a larger batch would take."""

    findings: list[Finding] = dataclasses.field(default_factory=list)
    what_if: list[WhatIf] = dataclasses.field(default_factory=list)
    batches: list[BatchRow] = dataclasses.field(default_factory=list)
    bigger_chips: list[ChipRow] = dataclasses.field(default_factory=list)


def advise(pictures: Sequence[Picture], timer: Timer | None) -> Advice:
    """What would fix the step; looked at twice where the first look asks for operators' times."""
    findings = remedies.find(pictures)
    timings = pictures[0].timings
    if timer is not None and timings.asked:
        timings.known.update(timer(list(timings.asked)))
        findings = remedies.find(pictures)
    return Advice(
        findings=findings,
        what_if=remedies.combine(pictures, findings),
        batches=remedies.batches(pictures[0]),
        bigger_chips=bigger_chips(pictures[0], findings),
    )
