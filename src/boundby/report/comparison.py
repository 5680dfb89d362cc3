"""A comparison of two diagnoses for a terminal: the largest slowdown first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from boundby.model import units
from boundby.model.comparison import Comparison, Difference, Side
from boundby.report.layout import Trimmed, plain_text, spaced, warning_line
from boundby.report.words import COLOURS, PART_NAMES, counted, short_name

_MOST_ROWS = 10  # display limit
# Differences below this share of the step are left out.
_SMALLEST_ROW = 0.001
_LONGEST_NAME = 40  # display limit
# A change that would be printed as 0.0%.
_SAME = 0.0005


class ComparisonReport:
    """Renders a `Comparison`; computes nothing."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Trimmed(_parts(self._comparison))


def _parts(comparison: Comparison) -> Iterator[RenderableType]:
    yield headline(comparison)
    yield Text(_side("before", comparison.before), style="dim")
    yield Text(_side("after", comparison.after), style="dim")
    yield from map(warning_line, comparison.warnings)
    yield spaced(_groups(comparison))
    least = _SMALLEST_ROW * comparison.before.wall_ns
    tables = {
        "source lines": comparison.lines,
        "call paths": comparison.paths,
        "operators": comparison.ops,
    }
    for what, rows in tables.items():
        shown = [row for row in rows if abs(row.delta_ns) >= least]
        if shown:
            yield spaced(_table(what, shown))
    modules = _with_parents(comparison.modules, least)
    if modules:
        yield spaced(_tree("modules, with all in them", modules))


def headline(comparison: Comparison) -> Text:
    """How much faster or slower, and whether that is more than noise."""
    change = comparison.slowdown
    words = f"{abs(change):.1%} {'slower' if change > 0 else 'faster'}"
    if abs(change) < _SAME:
        words = "as fast as before"
    if comparison.before.wall_source == comparison.after.wall_source == "profiled":
        words += (
            ", estimated without the profiler" if _is_estimated(comparison) else ", as profiled"
        )
    if comparison.refused:
        doubt = "not judged, because the machine was busy"
    elif comparison.same:
        doubt = "no difference: both are the same diagnosis"
    elif comparison.beyond_noise is None:
        doubt = "too few steps to separate it from noise"
        if _is_estimated(comparison):
            doubt = f"ranges {'' if _overlap(comparison) else 'do not '}overlap"
    elif comparison.beyond_noise:
        doubt = "beyond noise"
    else:
        doubt = "within noise"
    ratio = comparison.ratio
    interval = f"{ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}"
    has_interval = comparison.beyond_noise is not None and not comparison.same
    colour = ("red" if change > 0 else "green") if comparison.beyond_noise else ""
    return Text.assemble(
        (words, f"bold {colour}".strip()),
        f": {units.time(comparison.before.wall_ns)} to {units.time(comparison.after.wall_ns)}, "
        f"{doubt}{f' ({interval})' if has_interval else ''}",
    )


def _is_estimated(comparison: Comparison) -> bool:
    """Whether a step time without the profiler is known as a range only."""
    sides = (comparison.before, comparison.after)
    return any(side.interval_ns[0] < side.interval_ns[1] and not side.samples_ns for side in sides)


def _overlap(comparison: Comparison) -> bool:
    (low, high), (other_low, other_high) = (
        comparison.before.interval_ns,
        comparison.after.interval_ns,
    )
    return low <= other_high and other_low <= high


def as_text(comparison: Comparison) -> str:
    return plain_text(ComparisonReport(comparison))


def _side(word: str, side: Side) -> str:
    low, high = side.interval_ns
    bound = "bound by: unknown" if side.bound_by == "unknown" else f"{side.bound_by}-bound"
    details = [f"{units.time(low)} to {units.time(high)}"] if low < high else []
    if side.samples_ns:
        details.append(counted(len(side.samples_ns), f"{side.wall_source} step"))
    within = f" ({', '.join(details)})" if details else ""
    return f"{word}: {side.name} · {bound} · {units.time(side.wall_ns)}{within} · {side.device}"


def _groups(comparison: Comparison) -> Table:
    table = _columns("account")
    for row in comparison.groups:
        colour = COLOURS.get(row.name, "")  # type: ignore[call-overload]
        name = f"  {PART_NAMES.get(row.detail, row.detail)}" if row.detail else row.name
        table.add_row(Text(name, style="dim" if row.detail else colour), *_figures(row))
    return table


def _table(what: str, rows: list[Difference]) -> Table:
    table = _columns(what)
    # This column takes the remaining width; its cells are cut, not wrapped.
    table.add_column("", style="dim")
    largest = sorted(rows, key=lambda row: -abs(row.delta_ns))[:_MOST_ROWS]
    for row in sorted(largest, key=lambda row: -row.delta_ns):
        words = " · ".join(part for part in (row.detail, row.text) if part)
        name = Text(short_name(row.name), no_wrap=True, overflow="ellipsis")
        table.add_row(name, *_figures(row), Text(words, no_wrap=True, overflow="ellipsis"))
    return table


def _with_parents(rows: list[Difference], least: float) -> list[Difference]:
    """The rows of a tree that changed by this much, and those above them."""
    kept: list[Difference] = []
    needed = 0  # rows above this depth belong to a kept one
    for row in reversed(rows):
        if abs(row.delta_ns) >= least or row.depth < needed:
            kept.append(row)
            needed = row.depth
        elif row.depth == 0:
            needed = 0
    return kept[::-1]


def _tree(what: str, rows: list[Difference]) -> Table:
    table = _columns(what)
    for row in rows[:_MOST_ROWS]:
        table.add_row(Text("  " * row.depth + row.name, no_wrap=True), *_figures(row))
    return table


def _columns(what: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(what, no_wrap=True, overflow="ellipsis", max_width=_LONGEST_NAME)
    for heading in ("before", "after", "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _figures(row: Difference) -> tuple[str, str, Text]:
    delta = row.delta_ns
    words = f"{'+' if delta > 0 else '-' if delta < 0 else ''}{units.time(abs(delta))}"
    colour = "red" if delta > 0 else "green" if delta < 0 else "dim"
    return units.time(row.before_ns), units.time(row.after_ns), Text(words, style=colour)
