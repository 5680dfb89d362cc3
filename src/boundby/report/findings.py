"""Findings for a terminal: the saving and change of each, the saving of all together, a faster
chip."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from boundby.model import units
from boundby.model.diagnosis import Diagnosis
from boundby.model.finding import Finding
from boundby.report.layout import hanging, one_line
from boundby.report.words import COLOURS, TEXT_WIDTH, last_part, sentence

_MOST_SHOWN = 8  # display limit
_MOST_SHOWN_SHORT = 3  # display limit
# Lines of a change in the short report.
_MOST_CHANGE_LINES = 2
_INDENT = 3  # display: characters
# What a saving is a share of, if that is not the step.
_WHOLE = {"run": "the run", "samples": "the time for the same samples"}
# Findings that save a smaller share of the step are only named.
_WORTH_ACTING = 0.01


def findings(diagnosis: Diagnosis) -> list[RenderableType]:
    """Each finding with its saving, change, assumption and relation to the others."""
    lines: list[RenderableType] = [Text("what would help (predicted savings)", style="bold")]
    worthwhile, slight = _by_worth(diagnosis, _MOST_SHOWN)
    if not diagnosis.findings:
        lines.append(_nothing())
    for number, finding in enumerate(worthwhile, 1):
        lines.append(
            hanging(
                Text(f"{number}."),
                _headline(finding, diagnosis.whole_ns(finding)),
                Text(finding.change, style="cyan"),
                Text(_conditions(finding, diagnosis.findings), style="dim"),
            )
        )
    if slight:
        names = (
            f"{finding.fault} (up to {units.time(finding.saving_ns.high)})" for finding in slight
        )
        lines.append(Text(f"below 1% of the step: {', '.join(names)}", style="dim"))
    lines += together(diagnosis)
    lines += _batches(diagnosis)
    if diagnosis.findings:
        lines.append(Text("boundby explain FAULT: why it costs time, when not to", style="dim"))
    return lines


def short_findings(diagnosis: Diagnosis) -> list[RenderableType]:
    """The findings that save most: a headline and the change each."""
    worthwhile, slight = _by_worth(diagnosis, len(diagnosis.findings))
    shown = worthwhile[:_MOST_SHOWN_SHORT]
    more = len(worthwhile) + len(slight) - len(shown)
    heading = f"what would help ({more} more: --verbose)" if more else "what would help"
    lines: list[RenderableType] = [Text(heading, style="bold")]
    if not shown:
        lines.append(_nothing() if not diagnosis.findings else Text("nothing above 1% of the step"))
    for number, finding in enumerate(shown, 1):
        headline = _headline(finding, diagnosis.whole_ns(finding), short=True)
        change = (one_line(line, "cyan") for line in _change(finding))
        lines.append(hanging(Text(f"{number}."), headline, *change))
    return lines


def _nothing() -> Text:
    return Text("no known fault was found (boundby explain lists the known ones)")


def _change(finding: Finding) -> list[str]:
    """The change in at most two lines; the last one says if there is more."""
    lines = [
        part
        for line in finding.change.splitlines()
        for part in textwrap.wrap(line, TEXT_WIDTH - _INDENT, subsequent_indent="    ")
    ]
    if len(lines) <= _MOST_CHANGE_LINES:
        return lines
    return [*lines[: _MOST_CHANGE_LINES - 1], f"{lines[_MOST_CHANGE_LINES - 1]} …"]


def _headline(finding: Finding, wall_ns: float, *, short: bool = False) -> Text:
    """`Host waits for the device: 7.9 ms (0 to 33), 7.6% — train.py:57 [host-sync]`."""
    saving = finding.saving_ns
    share = units.share(saving.expected / wall_ns)
    whole = _WHOLE.get(finding.relative_to, finding.out_of)
    of_what = "" if short and whole == "the step" else f" of {whole}"
    places = [last_part(place) for place in finding.where[:3]] if short else finding.where[:3]
    where = f" — {', '.join(places)}" if places else ""
    remark = finding.remark.partition(":")[0] if short else finding.remark
    if finding.where and finding.inside and not short:
        where += f" (in {', '.join(map(last_part, finding.inside))})"
    return Text.assemble(
        (title_of(finding), f"bold {COLOURS[finding.group]}"),
        f": {units.time_range(saving.expected, saving.low, saving.high)}, {share}{of_what}{where}",
        (f" [{finding.fault}]", "dim"),
        (" (by reading the source alone)" if finding.static else "", "dim"),
        (f"; {remark}" if remark else "", "dim"),
    )


def title_of(finding: Finding) -> str:
    """The headline of a finding; files of older versions have only a summary."""
    return finding.title or finding.summary.strip().rstrip(".") or finding.fault


def _by_worth(diagnosis: Diagnosis, most: int) -> tuple[list[Finding], list[Finding]]:
    """The findings to act on, and those that are only named."""

    def is_worth(finding: Finding) -> bool:
        return finding.grows or finding.saving_ns.expected >= _WORTH_ACTING * diagnosis.whole_ns(
            finding
        )

    shown = diagnosis.findings[:most]
    return [finding for finding in shown if is_worth(finding)], [
        finding for finding in shown if not is_worth(finding)
    ]


def _conditions(finding: Finding, others: Sequence[Finding]) -> str:
    """The conditions of a finding: what its saving assumes, what else the change fixes, and what it
    cannot be combined with."""
    words = [sentence(f"Seen: {finding.evidence}")] if finding.evidence else []
    if finding.assumes:
        words.append(sentence(f"Assumes: {finding.assumes}"))
    if finding.also:
        words.append(f"Also fixes: {', '.join(finding.also)}.")
    instead = [
        other.fault
        for other in others
        if other.fault in finding.excludes or finding.fault in other.excludes
    ]
    if instead:
        words.append(f"Cannot be combined with: {', '.join(instead)}.")
    return " ".join(words)


def _step_ns(diagnosis: Diagnosis) -> float:
    """The unchanged step as simulated: a trace's measured step includes profiler overhead."""
    unchanged = (row.wall_ns.expected for row in diagnosis.what_if if not row.faults)
    return next(unchanged, diagnosis.step.wall_ns)


def together(diagnosis: Diagnosis, *, short: bool = False) -> list[Text]:
    """The step with all faults fixed that can be fixed together."""
    best = min(diagnosis.what_if, key=lambda row: row.wall_ns.expected, default=None)
    if best is None or len(best.faults) < 2:
        return []
    before, wall = _step_ns(diagnosis), best.wall_ns
    which = f"{len(best.faults)} fixes" if short else ", ".join(best.faults)
    words = (
        f"({which}): {units.time(before)} -> "
        f"{units.time_range(wall.expected, wall.low, wall.high)}, "
        f"{units.times(before / max(wall.expected, 1.0))} faster"
    )
    return [Text.assemble(("together ", "bold"), words)]


def _batches(diagnosis: Diagnosis) -> list[Text]:
    if not diagnosis.batches:
        return []
    before = _step_ns(diagnosis)
    words = ", ".join(
        f"{row.factor}x the batch takes {row.wall_ns.expected / before:.2f}x the time "
        f"({row.wall_ns.low / before:.2f} to {row.wall_ns.high / before:.2f})"
        for row in diagnosis.batches
    )
    return [Text(f"larger batch (predicted): {words}", style="dim")]


def chips(diagnosis: Diagnosis) -> Text:
    """The same step on faster chips, if this one is at its roofline."""
    words = [
        f"{row.chip} {units.time_range(row.wall_ns.expected, row.wall_ns.low, row.wall_ns.high)}"
        for row in diagnosis.bigger_chips
    ]
    return Text.assemble(
        ("at the roofline: ", "bold"),
        "this chip cannot run the step much faster. Predicted from datasheets: ",
        ", ".join(words),
    )
