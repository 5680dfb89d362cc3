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

# What the device bounds takes this much more or less in another process: the same steps of five
# models on an H200, each in three to five processes, spread by 0.3 to 1.7%.
_PROCESSES_DIFFER = 0.01

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
    advice = Advice(
        findings=findings,
        what_if=remedies.combine(pictures, findings),
        batches=remedies.batches(pictures[0]),
        bigger_chips=bigger_chips(pictures[0], findings),
    )
    return _in_another_process(advice, pictures[0].wall_ns)


def _in_another_process(advice: Advice, wall_ns: float) -> Advice:
    """A fix is seen in another process than the step was: every range holds what they differ by."""
    by_ns = _PROCESSES_DIFFER * wall_ns
    findings = [
        msgspec.structs.replace(finding, saving_ns=_widened(finding.saving_ns, by_ns))
        for finding in advice.findings
    ]
    what_if = [
        msgspec.structs.replace(row, wall_ns=_widened(row.wall_ns, by_ns)) if row.faults else row
        for row in advice.what_if
    ]
    batches = [
        msgspec.structs.replace(row, wall_ns=_widened(row.wall_ns, row.factor * by_ns))
        for row in advice.batches
    ]
    return dataclasses.replace(advice, findings=findings, what_if=what_if, batches=batches)


def _widened(found: Range, by_ns: float) -> Range:
    return Range(low=max(0.0, found.low - by_ns), expected=found.expected, high=found.high + by_ns)


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
