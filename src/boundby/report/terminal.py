"""A diagnosis for a terminal: one screen by default, everything with `verbose`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from boundby.model import units
from boundby.model.diagnosis import Diagnosis
from boundby.model.rows import NO_LINE
from boundby.report import tables
from boundby.report.facts import facts
from boundby.report.findings import chips, findings, short_findings, together
from boundby.report.header import (
    account,
    coverage_line,
    decode_words,
    run_line,
    step_line,
    utilisation_words,
    verdict_line,
)
from boundby.report.layout import Trimmed, hanging, plain_text, spaced, warning_line
from boundby.report.proofs import ProofsReport, final_line
from boundby.report.words import TEXT_WIDTH, counted, last_part, sentence

# The short report fits one screen of this many lines at 100 columns.
MOST_LINES = 35
_MOST_SOURCE_LINES = 5  # display limit
_MOST_NOTES = 4  # display limit
_ADVICE_LINES = 3  # what the advice takes at most, with the empty line before it


class DiagnosisReport:
    """Renders a `Diagnosis`; computes nothing.

    Names from a trace or a script are put into `Text`, never into plain strings, which rich would
    parse as markup.
    """

    def __init__(self, diagnosis: Diagnosis, *, verbose: bool = False) -> None:
        self._diagnosis = diagnosis
        self._verbose = verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        diagnosis = self._diagnosis
        if self._verbose:
            yield Trimmed(_everything(diagnosis))
            return

        def height(*parts: RenderableType) -> int:
            return len(console.render_lines(Group(*parts), options, pad=False))

        parts = list(_screen(diagnosis))
        yield Trimmed([*parts, *_end(diagnosis, MOST_LINES - height(*parts), height)])


def as_text(diagnosis: Diagnosis, *, verbose: bool = False) -> str:
    """The report without colours, as for a file or a log."""
    return plain_text(DiagnosisReport(diagnosis, verbose=verbose), TEXT_WIDTH)


def _screen(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """Verdict, step, account and the three largest findings."""
    if (covered := coverage_line(diagnosis)) is not None:
        yield covered
    yield verdict_line(diagnosis)
    yield step_line(diagnosis)
    if diagnosis.run is not None:
        yield run_line(diagnosis.run)
    used = utilisation_words(diagnosis.utilisation)
    if used:
        yield Text(f"Utilisation: {used}", "dim")
    if diagnosis.decode_limit is not None:
        words = decode_words(diagnosis.decode_limit, diagnosis.step.wall_ns)
        yield Text(sentence(words), "dim")
    if diagnosis.ranks:
        yield _ranks_line(diagnosis)
    if diagnosis.proofs:
        yield final_line(diagnosis)
    yield spaced(account(diagnosis, verbose=False))
    if diagnosis.findings or diagnosis.batches:
        yield spaced(Group(*short_findings(diagnosis), *together(diagnosis, short=True)))
    if diagnosis.bigger_chips:
        yield spaced(chips(diagnosis))


def _end(diagnosis: Diagnosis, room: int, height: Callable[..., int]) -> Iterator[RenderableType]:
    """Source lines and notes, as many as fit into the remaining lines, and how to see more."""
    room -= 2  # the last line, and the empty one above it
    rows = min(_MOST_SOURCE_LINES, room - 2)
    if _has_lines(diagnosis) and rows > 0:
        table = tables.source_lines(diagnosis, rows)
        yield spaced(table)
        room -= table.row_count + 2
        advised = next((row for row in diagnosis.lines if row.advice), None)
        if advised is not None and room > _ADVICE_LINES + 1:
            yield Text(f"{last_part(advised.where)}: {advised.advice}", style="dim")
            room -= _ADVICE_LINES
    yield Text()
    unstated = [note for note in diagnosis.notes if note.text[1:] not in diagnosis.verdict.why]
    shown = unstated[: max(0, min(_MOST_NOTES, room))]
    for later, note in zip(reversed(range(len(shown))), shown, strict=True):
        line: RenderableType = hanging(warning_line(""), Text(note.text))
        if height(line) > room - later:  # each later note needs a line
            line = Text.assemble(warning_line(note.text), no_wrap=True, overflow="ellipsis")
        room -= height(line)
        yield line
    hidden = len(unstated) - len(shown)
    notes = f" and {counted(hidden, 'more warning')}" if hidden else ""
    yield Text(
        f"More: --verbose (all tables{notes}), --html FILE (page), boundby explain FAULT",
        style="dim",
    )


def _ranks_line(diagnosis: Diagnosis) -> Text:
    walls = [row.wall_ns for row in diagnosis.ranks if not row.problem]
    times = f", steps of {units.time(min(walls))} to {units.time(max(walls))}" if walls else ""
    unread = len(diagnosis.ranks) - len(walls)
    failed = f", {unread} unreadable" if unread else ""
    words = f"{counted(len(diagnosis.ranks), 'rank')}{times}{failed}{_shown_rank(diagnosis)}"
    return Text(words, style="dim")


def _shown_rank(diagnosis: Diagnosis) -> str:
    """Which of several ranks the report is about, and why."""
    rows = [row for row in diagnosis.ranks if row.name == last_part(diagnosis.target)]
    if len(rows) != 1 or len(diagnosis.ranks) == 1:
        return ""
    why = "the slowest" if rows[0].waiting_ns is None else "which the others wait for"
    return f"; shown is rank {rows[0].rank}, {why}"


def _has_lines(diagnosis: Diagnosis) -> bool:
    return any(row.where != NO_LINE for row in diagnosis.lines)


def _everything(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    if (covered := coverage_line(diagnosis)) is not None:
        yield covered
    yield verdict_line(diagnosis)
    yield step_line(diagnosis)
    if diagnosis.run is not None:
        yield run_line(diagnosis.run)
    yield spaced(account(diagnosis, verbose=True))
    if diagnosis.findings or diagnosis.batches:
        yield spaced(Group(*findings(diagnosis)))
    if diagnosis.bigger_chips:
        yield spaced(chips(diagnosis))
    if _has_lines(diagnosis):
        yield spaced(tables.source_lines(diagnosis))
        for row in diagnosis.lines:
            if row.advice:
                yield Text(f"{last_part(row.where)}: {row.advice}", style="dim")
        modules = tables.modules(diagnosis)
        if modules is not None:
            yield spaced(modules)
    if diagnosis.ops:
        yield spaced(tables.operators(diagnosis))
    if diagnosis.classes:
        yield spaced(tables.classes(diagnosis))
    if diagnosis.kernel_classes:
        yield spaced(tables.kernel_classes(diagnosis))
    if diagnosis.critical_path:
        yield spaced(tables.critical_path(diagnosis))
    if diagnosis.collectives:
        yield spaced(tables.collectives(diagnosis))
    if diagnosis.ranks:
        yield spaced(tables.ranks(diagnosis.ranks))
    if diagnosis.proofs:
        yield spaced(ProofsReport(diagnosis, alone=False))
    yield spaced(Group(*facts(diagnosis)))
    for note in diagnosis.notes:
        yield hanging(warning_line(""), Text(note.text))
        if note.detail is not None:
            yield Text(note.detail.rstrip(), style="dim")
