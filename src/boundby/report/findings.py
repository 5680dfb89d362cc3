"""What would help, for a terminal: the findings, what they make together, a faster chip."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from boundby.model import units
from boundby.model.diagnosis import Diagnosis, Finding
from boundby.report.words import COLOURS, last_part

_MOST_SHOWN = 8
# Findings that promise less than this share of the step are named, not explained.
_WORTH_ACTING = 0.01


def findings(diagnosis: Diagnosis) -> Group:
    """Each finding in three lines: what it saves, the change, what it takes for granted."""
    lines = [Text("what would help, and by how much (predicted)", style="bold")]
    worthwhile, slight = _by_worth(diagnosis)
    if not diagnosis.findings:
        lines.append(Text("nothing that boundby knows of (boundby explain lists it)"))
    for number, finding in enumerate(worthwhile, 1):
        saving = finding.saving_ns
        where = f", at {', '.join(finding.where[:3])}" if finding.where else ""
        if finding.where and finding.inside:
            where += f" (in {', '.join(map(last_part, finding.inside))})"
        share = units.share(saving.expected / diagnosis.step.wall_ns)
        lines += [
            Text.assemble(
                f"{number}. ",
                (finding.fault, COLOURS[finding.group]),
                f" would save {units.time(saving.expected)} ({units.time(saving.low)} to "
                f"{units.time(saving.high)}), {share} of {finding.out_of}{where}",
            ),
            Text(textwrap.indent(finding.change, "   "), style="cyan"),
            Text(f"   if {finding.assumes}{_besides(finding, diagnosis.findings)}", style="dim"),
        ]
    if slight:
        reach = (f"{one.fault} (up to {units.time(one.saving_ns.high)})" for one in slight)
        lines.append(Text(f"expected to save less than 1%: {', '.join(reach)}", style="dim"))
    lines += _together(diagnosis)
    if diagnosis.findings:
        lines.append(Text("   boundby explain FAULT says why, and when not to", style="dim"))
    return Group(*lines)


def _by_worth(diagnosis: Diagnosis) -> tuple[list[Finding], list[Finding]]:
    """The findings to act on, and those that a line will do for."""
    least_ns = _WORTH_ACTING * diagnosis.step.wall_ns
    shown = diagnosis.findings[:_MOST_SHOWN]
    worthwhile = [finding for finding in shown if finding.saving_ns.expected >= least_ns]
    return worthwhile, [finding for finding in shown if finding.saving_ns.expected < least_ns]


def _besides(finding: Finding, others: Sequence[Finding]) -> str:
    """What the change mends as well, and which of the others it takes the place of."""
    words = f"; it mends {', '.join(finding.also)} too" if finding.also else ""
    instead = [
        other.fault
        for other in others
        if other.fault in finding.excludes or finding.fault in other.excludes
    ]
    return words + (f"; instead of {', '.join(instead)}, not with it" if instead else "")


def _together(diagnosis: Diagnosis) -> list[Text]:
    """What all that go together would make of the step, and what a larger batch would take."""
    lines = []
    several = [row for row in diagnosis.what_if if len(row.faults) > 1]
    # A trace's step is the profiled one: what is imagined is held against the replayed one.
    unmended = (row.wall_ns.expected for row in diagnosis.what_if if not row.faults)
    before = next(unmended, diagnosis.step.wall_ns)
    best = min(diagnosis.what_if, key=lambda row: row.wall_ns.expected, default=None)
    if best is not None and best in several:
        wall = best.wall_ns
        lines.append(
            Text.assemble(
                ("together ", "bold"),
                f"({', '.join(best.faults)}): {units.time(before)} -> {units.time(wall.expected)} "
                f"({units.time(wall.low)} to {units.time(wall.high)}), "
                f"{before / max(wall.expected, 1.0):.2f}x",
            )
        )
    if diagnosis.batches:
        words = ", ".join(
            f"{row.factor}x as large {row.wall_ns.expected / before:.2f}x the time "
            f"({row.wall_ns.low / before:.2f} to {row.wall_ns.high / before:.2f})"
            for row in diagnosis.batches
        )
        lines.append(Text(f"a batch {words} (predicted)", style="dim"))
    return lines


def chips(diagnosis: Diagnosis) -> Text:
    """What is left when nothing is: a faster chip."""
    words = [
        f"{row.chip} {units.time(row.wall_ns.expected)} ({units.time(row.wall_ns.low)} to "
        f"{units.time(row.wall_ns.high)})"
        for row in diagnosis.bigger_chips
    ]
    return Text.assemble(
        ("at the roof: ", "bold"),
        "this chip does what it can; by their datasheets the step would take on a ",
        ", ".join(words),
    )
