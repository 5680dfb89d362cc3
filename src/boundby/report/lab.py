"""Lab results for a terminal: predicted, measured, and the conclusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from boundby.model import units
from boundby.model.lab import Interval, LabReport, Outcome, Result
from boundby.report.layout import Trimmed, spaced
from boundby.report.machine import age, title

_STYLES: dict[Outcome, str] = {
    "held": "green",
    "not held": "yellow",
    "failed": "red",
    "not run": "dim",
}
# A value just outside the predicted range may still hold: the measurement has an error too.
_RULE = "✓ = the measured value, with its spread, overlaps the predicted range"


class ExperimentList:
    """The experiments: name, what each shows, the claim it tests."""

    def __init__(self, rows: Sequence[tuple[str, str, str]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
        table.add_column("experiment", no_wrap=True, style="bold")
        table.add_column("what it shows, and the claim it tests")
        for name, shows, claim in self._rows:
            table.add_row(name, Text.assemble(shows, "\n", (claim, "dim")))
        yield Trimmed([table])


class LabTable:
    """Renders a `LabReport`; computes nothing."""

    def __init__(self, report: LabReport) -> None:
        self._report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Trimmed(_parts(self._report))


def _parts(report: LabReport) -> Iterator[RenderableType]:
    yield Text(headline(report), style="bold")
    yield Text(f"{title(report.machine)} · roofs {age(report.machine)}", style="dim")
    if any(result.measured for result in report.results):
        yield Text(_RULE, style="dim")
    if report.quick:
        yield Text("quick measurement, wider error", style="dim")
    for result in report.results:
        yield spaced(_heading(result))
        if result.measured:
            yield _figures(result)
        if result.why:
            yield Padding(Text(result.why), (0, 0, 0, 2))
        for note in result.notes:
            if note:
                yield Padding(Text(note, style="dim"), (0, 0, 0, 2))


def headline(report: LabReport) -> str:
    """How many claims held."""
    held_count = sum(result.outcome == "held" for result in report.results)
    parts = [f"{held_count} of {len(report.results)} claims held on this machine"]
    words: dict[Outcome, str] = {"not held": "did not", "failed": "failed", "not run": "not run"}
    for outcome in words:
        names = [each.name for each in report.results if each.outcome == outcome]
        if names:
            parts.append(f"{words[outcome]}: {', '.join(names)}")
    return "; ".join(parts) + (" (interrupted)" if report.interrupted else "")


def interval(figure: Interval, unit: str) -> str:
    """A range; the unit is printed once where both ends share it."""
    low, high = units.quantity(figure.low, unit), units.quantity(figure.high, unit)
    if low.split(" ")[1:] == high.split(" ")[1:]:
        low = low.split(" ")[0]
    return f"{low} to {high}"


def _heading(result: Result) -> Text:
    return Text.assemble(
        (result.name, "bold"),
        "  ",
        (result.outcome, _STYLES[result.outcome]),
        (f"  {result.title}", "dim"),
    )


def _figures(result: Result) -> Padding:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", width=1)
    table.add_column("", overflow="fold")
    for heading in ("predicted", "between", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, measurement in result.measured.items():
        predicted = result.predicted.get(name)
        sign = {True: ("✓", "green"), False: ("✗", "yellow"), None: (" ", "")}[measurement.held]
        table.add_row(
            Text(*sign),
            Text(measurement.what),
            units.quantity(predicted.value, predicted.unit) if predicted else "",
            Text(interval(predicted, predicted.unit) if predicted else "", style="dim"),
            units.quantity(measurement.value, measurement.unit),
        )
    return Padding(table, (0, 0, 0, 2))
