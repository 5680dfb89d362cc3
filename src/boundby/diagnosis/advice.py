"""What to do about a step: findings, alone and together, larger batches, faster chips."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import msgspec

from boundby import remedies
from boundby.model.diagnosis import BatchRow, ChipRow, Finding, Range, WhatIf
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


def doubted(advice: Advice, wall_ns: float) -> Advice:
    """Advice that rests on a doubtful step: each may save nothing, or twice as much."""
    findings = [
        msgspec.structs.replace(
            finding,
            saving_ns=Range(
                low=0.0,
                expected=finding.saving_ns.expected,
                high=max(finding.saving_ns.high, min(wall_ns, 2 * finding.saving_ns.expected)),
            ),
        )
        for finding in advice.findings
    ]
    what_if = [
        msgspec.structs.replace(
            row,
            wall_ns=Range(
                low=min(row.wall_ns.low, max(0.0, 2 * row.wall_ns.expected - wall_ns)),
                expected=row.wall_ns.expected,
                high=max(row.wall_ns.high, wall_ns),
            ),
        )
        for row in advice.what_if
    ]
    return dataclasses.replace(advice, findings=findings, what_if=what_if)
