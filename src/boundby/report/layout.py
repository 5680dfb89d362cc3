"""Layout that all terminal reports share: lines without trailing blanks, tables, text output."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from boundby.model import units
from boundby.report.words import TEXT_WIDTH


class Trimmed:
    """Renders its parts one after the other; no line ends with blanks."""

    def __init__(self, parts: Iterable[RenderableType]) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in self._parts:
            for line in console.render_lines(part, options, pad=False):
                yield from map(_printable, _without_trailing_blanks(line))
                yield Segment.line()


def _without_trailing_blanks(line: list[Segment]) -> list[Segment]:
    remaining = list(line)
    while remaining:
        text, style, control = remaining.pop()
        if control or text.rstrip():
            remaining.append(Segment(text if control else text.rstrip(), style, control))
            break
    return remaining


def _printable(segment: Segment) -> Segment:
    text, style, control = segment
    return segment if control else Segment(units.printable(text), style)


def spaced(what: RenderableType) -> Padding:
    """The part with an empty line above it."""
    return Padding(what, (1, 0, 0, 0))


def table_of(first: str, numbers: Iterable[str], words: Iterable[str] = ()) -> Table:
    """A table without borders: a name, columns of numbers, columns of words."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in words:
        table.add_column(heading, overflow="fold")
    return table


def hanging(mark: Text, *lines: RenderableType) -> Table:
    """Lines that are indented behind a mark, such as a number."""
    table = Table.grid(padding=(0, 1, 0, 0))
    mark.rstrip()
    table.add_row(mark, Group(*lines))
    return table


def one_line(text: str, style: str = "") -> Text:
    """Text that is cut with an ellipsis where it does not fit into its line."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def warning_line(text: str) -> Text:
    return Text.assemble(("! ", "yellow"), text)


def plain_text(report: RenderableType, width: int = TEXT_WIDTH) -> str:
    """The report as plain text: without colours, at a fixed width."""
    written = io.StringIO()
    Console(file=written, width=width, color_system=None, highlight=False).print(report, end="")
    return written.getvalue()
