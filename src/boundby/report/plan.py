"""Plans for a terminal: the step with its parts, searches and sweeps, scores of a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from boundby.model import units
from boundby.model.estimate import Estimate
from boundby.model.plan import PlanResult, PlanScore, PlanSearch, PlanServing, PlanTable
from boundby.report.layout import Trimmed

_KIND_COLOURS = {
    "matmul": "green",
    "attention": "green",
    "memory": "blue",
    "collective": "magenta",
    "bubble": "yellow",
    "overhead": "red",
}
_BAR_WIDTH = 24  # columns


def estimate(found: Estimate) -> str:
    """The expected time with its range."""
    low, high = units.time(found.low), units.time(found.high)
    return f"{units.time(found.expected)} ({low} to {high})"


class PlanReport:
    """Renders a `PlanResult`; computes nothing but shares."""

    def __init__(self, result: PlanResult) -> None:
        self._result = result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Trimmed(self._parts())

    def _parts(self) -> Iterator[RenderableType]:
        result = self._result
        layout = " ".join(f"{axis}={ways}" for axis, ways in result.mesh.items())
        yield Text.assemble((result.title, "bold"), f" on {result.chips} x {result.chip}")
        if layout:
            yield Text(layout, style="dim")
        if result.serving:
            yield Padding(_serving(result.serving), (1, 0, 0, 0))
            if cost := rates(result):
                yield Text(cost)
        else:
            yield Text.assemble(
                (f"{estimate(result.step_ns)}", "bold"), f", bound by {result.bound_by}"
            )
            overlap, serial = units.time(result.overlapped_ns), units.time(result.serial_ns)
            yield Text(f"perfect overlap {overlap}, no overlap {serial}")
            yield Text(rates(result))
            if result.mfu_convention:
                yield Text(f"MFU counts {result.mfu_convention}", style="dim")
        yield Padding(_terms(result), (1, 0, 0, 0))
        if result.memory:
            yield Padding(_memory(result), (1, 0, 0, 0))
        for limit in result.limits:
            value = units.quantity(limit.value, limit.unit)
            yield Text.assemble((f"{limit.name}: {value}", "bold"), f"  {limit.meaning}")
        for note in result.notes:
            yield Text(f"note: {note}", style="dim")


def rates(result: PlanResult) -> str:
    """Throughput, utilisation and cost in one line."""
    parts = []
    if result.tokens_per_s_per_chip is not None:
        parts.append(f"{result.tokens_per_s_per_chip:,.0f} tokens/s per chip")
    if result.mfu is not None:
        parts.append(f"MFU {units.share(result.mfu)}")
    if result.hfu is not None:
        parts.append(f"HFU {units.share(result.hfu)}")
    if result.usd_per_million_tokens is not None:
        tokens = "output tokens" if result.serving else "tokens"
        parts.append(f"{result.usd_per_million_tokens:.3f} USD per million {tokens}")
    return " · ".join(parts)


def _terms(result: PlanResult) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for heading in ("part", "axis"):
        table.add_column(heading)
    for heading in ("time", "exposed", "share"):
        table.add_column(heading, justify="right")
    table.add_column("")
    whole = sum(term.exposed_ns for term in result.terms) or 1.0
    for term in result.terms:
        share = term.exposed_ns / whole
        bar = "█" * round(share * _BAR_WIDTH)
        table.add_row(
            term.name,
            term.axis or "",
            units.time(term.total_ns),
            units.time(term.exposed_ns),
            units.share(share),
            Text(bar, style=_KIND_COLOURS[term.kind]),
        )
    return table


def _memory(result: PlanResult) -> Text:
    used = sum(part.bytes for part in result.memory)
    parts = ", ".join(f"{part.name} {units.size(part.bytes)}" for part in result.memory)
    fits = "fits" if result.fits else "does not fit"
    return Text.assemble(
        ("memory per chip ", "bold"),
        f"{units.size(used)} of {units.size(result.memory_capacity)}: {fits} ({parts})",
    )


def serving_rows(result: PlanServing) -> list[tuple[str, str]]:
    """Latency and throughput of a service: names and values."""
    rows = [
        ("time to first token", estimate(result.first_token_ns)),
        ("time per output token", estimate(result.per_token_ns)),
        ("one request", estimate(result.request_ns)),
        (
            "throughput",
            f"{result.output_tokens_per_s:,.0f} output tokens/s at batch {result.batch}",
        ),
        ("largest batch that fits", str(result.largest_batch)),
    ]
    if result.curve:
        points = ", ".join(
            f"{batch}: {units.time(ns)}, {rate:,.0f}/s" for batch, ns, rate in result.curve
        )
        rows.append(("batch: time per token, tokens/s", points))
    return rows


def _serving(result: PlanServing) -> Text:
    return Text("\n".join(f"{name:<21} {value}" for name, value in serving_rows(result)))


class PlanSearchReport:
    """Renders a `PlanSearch`: layouts ranked, or the points of a sweep."""

    def __init__(self, found: PlanSearch) -> None:
        self._found = found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Trimmed(self._parts())

    def _parts(self) -> Iterator[RenderableType]:
        result = self._found
        yield Text.assemble((result.title, "bold"), f" on {result.chip}")
        yield Text(f"{result.considered} layouts, {result.fitting} fit", style="dim")
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("chips", "layout", "micro", "recompute"):
            table.add_column(heading)
        for heading in ("step", "MFU", "memory"):
            table.add_column(heading, justify="right")
        table.add_column("against the fastest" if result.kind == "search" else "")
        for choice in result.choices:
            table.add_row(
                str(choice.chips),
                " ".join(f"{axis}={ways}" for axis, ways in choice.mesh.items()) or "one chip",
                f"{choice.micro_batch:g}",
                choice.recompute,
                units.time(choice.step_ns.expected),
                units.share(choice.mfu),
                units.size(choice.memory_bytes),
                choice.why,
            )
        yield table
        for note in result.notes:
            yield Text(f"note: {note}", style="dim")


class PlanTableReport:
    """Renders the scores of a `PlanTable`."""

    def __init__(self, table: PlanTable) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Trimmed(self._parts())

    def _parts(self) -> Iterator[RenderableType]:
        result = self._table
        yield Text.assemble((result.file, "bold"), f": {len(result.rows)} rows predicted")
        if result.scores:
            yield _scores(result.scores, "source")
        if result.memory_scores:
            yield Padding(_scores(result.memory_scores, "memory per chip"), (1, 0, 0, 0))
        for reason, count in result.skipped.items():
            yield Text(f"left out: {count} rows, {reason}", style="dim")


def _scores(scores: list[PlanScore], heading: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(heading)
    for name in ("rows", "mean error", "bias", "in range", "rank correlation"):
        table.add_column(name, justify="right")
    for score in scores:
        rank = score.rank_correlation
        table.add_row(
            score.name,
            str(score.rows),
            units.share(score.mean_error),
            units.share(score.bias),
            units.share(score.coverage),
            f"{rank:.2f}" if rank is not None else "",
        )
    return table
