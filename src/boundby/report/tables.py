"""Tables of a diagnosis report: source lines, modules, operators, classes, collectives, ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from boundby.model import units
from boundby.model.diagnosis import Diagnosis
from boundby.model.rows import NO_LINE, CallerRow, LineRow, RankRow
from boundby.report.layout import one_line, table_of
from boundby.report.words import COLOURS, SHORT_PART_NAMES, counted, last_part, short_name

_MOST_LINES = 8  # display limit
_MOST_OPS = 10  # display limit
_SHORTEST_LINE_SHARE = 0.005  # display limit
# Lines of libraries below a line of the user's script.
_MOST_INSIDE = 6
_SHORTEST_INSIDE_SHARE = 0.02  # display limit
# A line with this share of the step, and this many kinds of modules, is divided by module.
_MOSTLY_ONE_LINE, _FEWEST_MODULES = 0.5, 3
_NUMBER = re.compile(r"_\d+$")
_OVERHEAD_PARTS = ("python", "launch", "sync", "data", "unseen", "core", "small_kernels")
# A line's main group is shown with its share of the line if that is less than this.
_ALL = 0.75
_CODE = 4  # the column of source text
_OUTSIDE = "(outside the script)"


def source_lines(diagnosis: Diagnosis, most_rows: int | None = None) -> Table:
    """The longest lines of the script, each followed by the library lines below it.

    With `most_rows`, at most that many rows, and no row for the rest.
    """
    shown = [row for row in diagnosis.lines[:_MOST_LINES] if row.share >= _SHORTEST_LINE_SHARE]
    rows = []
    for row in shown:
        rows.append((row, _OUTSIDE if row.where == NO_LINE else row.where))
        if len(row.callers) > 1:
            rows += [
                (_as_row(row, caller), f"  from {last_part(caller.where)}")
                for caller in row.callers
            ]
        rows += [
            (inner, f"  {last_part(inner.where)}")
            for inner in row.inside[:_MOST_INSIDE]
            if inner.share >= _SHORTEST_INSIDE_SHARE
        ]
    # A trace contains no source text.
    code = ("code",) if any(row.text for row, _ in rows[:most_rows]) else ()
    table = table_of("source lines", ("time", "share"), ("line", *code))
    for row, where in rows[:most_rows]:
        _add_line(table, row, where)
    rest = diagnosis.lines[len(shown) :]
    if most_rows is None and sum(row.share for row in rest) >= _SHORTEST_LINE_SHARE:
        ns, share = sum(row.ns for row in rest), sum(row.share for row in rest)
        table.add_row("", units.time(ns), units.share(share), counted(len(rest), "more line"))
    return table


def _as_row(row: LineRow, caller: CallerRow) -> LineRow:
    share = row.share * caller.ns / row.ns if row.ns else 0.0
    return LineRow(
        where=caller.where,
        ns=caller.ns,
        share=share,
        groups=row.groups,
        parts=row.parts,
        text=counted(caller.count, "call"),
    )


def modules(diagnosis: Diagnosis) -> Table | None:
    """The kinds of modules inside one line that is most of the step.

    `x = self.encoder(x)` does not show which module takes the time. None if the lines do.
    """
    longest = max(diagnosis.lines, key=lambda row: row.share)
    if longest.share < _MOSTLY_ONE_LINE or longest.inside:
        return None
    kinds: dict[str, list[LineRow]] = defaultdict(list)
    for row in diagnosis.modules:
        if row.where != NO_LINE:
            kinds[".".join(_NUMBER.sub("", part) for part in row.where.split(".")[-2:])].append(row)
    if len(kinds) < _FEWEST_MODULES:
        return None
    table = table_of("modules", ("time", "share"), ("kind", ""))
    sums = sorted(map(_sum_of, kinds, kinds.values()), key=lambda row: -row.ns)
    for row in sums[:_MOST_INSIDE]:
        if row.share >= _SHORTEST_INSIDE_SHARE:
            _add_line(table, row, row.where)
    return table


def _sum_of(where: str, rows: Sequence[LineRow]) -> LineRow:
    groups: dict[str, float] = defaultdict(float)
    for row in rows:
        for group, ns in row.groups.items():
            groups[group] += ns
    return LineRow(
        where=where,
        ns=sum(row.ns for row in rows),
        share=sum(row.share for row in rows),
        groups=groups,
        text=counted(len(rows), "module") if len(rows) > 1 else "",
    )


def _add_line(table: Table, row: LineRow, where: str) -> None:
    main = max(row.groups, key=lambda group: row.groups[group], default="unknown")
    # Of overhead, the cause is what a user can change.
    causes = {part: ns for part, ns in row.parts.items() if part in _OVERHEAD_PARTS}
    cause = max(causes, key=lambda part: causes[part], default=None)
    share = row.groups.get(main, 0.0) / row.ns if row.ns else 1.0
    words = main if share >= _ALL else f"{main} {units.share(share)}"
    words += f": {SHORT_PART_NAMES[cause]}" if main == "overhead" and cause else ""
    table.add_row(
        Text(words, style=COLOURS.get(main, "")),  # type: ignore[call-overload]
        units.time(row.ns),
        units.share(row.share),
        Text(where, no_wrap=True, overflow="ellipsis"),
        *([one_line(row.text or "", "dim")] if len(table.columns) > _CODE else []),
    )


def operators(diagnosis: Diagnosis) -> Table:
    headings = ("time", "calls", "of roof")
    table = table_of("operators", headings, ("operator", "shapes", "line"))
    for row in diagnosis.ops[:_MOST_OPS]:
        fraction = units.share(row.roof_fraction)
        table.add_row(
            row.bound + (" ?" if row.roof_suspect else ""),
            units.time(row.ns),
            str(row.count),
            f"under {fraction}" if row.upper_bound and row.roof_fraction else fraction,
            one_line(short_name(row.name)),
            one_line(row.shapes, "dim"),
            one_line(last_part(row.inside or row.where)),
        )
    return table


def classes(diagnosis: Diagnosis) -> Table:
    table = table_of("operator classes", ("FLOP share", "time share", "FLOP/s", "slower"))
    for row in diagnosis.classes:
        slower = row.slower_than_contractions
        table.add_row(
            row.name,
            units.share(row.flops_share, decimals=2),
            units.share(row.time_share, decimals=1),
            units.rate(row.flops_per_s, "FLOP/s"),
            units.quantity(slower, "x") if slower else "-",
        )
    return table


def kernel_classes(diagnosis: Diagnosis) -> Table:
    """Device time by class of kernel, known from the names of kernels."""
    columns = ("time", "share", "kernels", "cost known")
    table = table_of("kernel classes", columns, ("dtypes",))
    for row in diagnosis.kernel_classes:
        dtypes = sorted(row.dtypes, key=lambda dtype: -row.dtypes[dtype])
        table.add_row(
            row.kernel_class,
            units.time(row.ns),
            units.share(row.share),
            str(row.kernels),
            units.share(row.costed_ns / row.ns if row.ns else None),
            ", ".join(dtypes),
        )
    return table


def collectives(diagnosis: Diagnosis) -> Table:
    table = table_of("collectives", ("time", "exposed", "calls", "message", "bandwidth"))
    for row in diagnosis.collectives[:_MOST_LINES]:
        table.add_row(
            one_line(short_name(row.name)),
            units.time(row.ns),
            units.time(row.exposed_ns),
            str(row.count),
            units.size(row.bytes),
            units.rate(row.bytes_per_s, "B/s"),
        )
    return table


def critical_path(diagnosis: Diagnosis) -> Table:
    table = table_of("critical path", ("time", "share", "segments"), ("line",))
    for row in diagnosis.critical_path[:_MOST_LINES]:
        table.add_row(
            one_line(short_name(row.what)),
            units.time(row.ns),
            units.share(row.share),
            str(row.count),
            Text(last_part(row.where)),
        )
    return table


def ranks(rows: list[RankRow]) -> Table:
    columns = ("step", "busy", "communication", "exposed", "waiting for others")
    table = table_of("ranks", columns, ("file",))
    for row in sorted(rows, key=lambda row: row.rank):
        if row.problem:
            table.add_row(str(row.rank), "-", "-", "-", "-", "-", Text(row.problem))
            continue
        table.add_row(
            str(row.rank),
            units.time(row.wall_ns),
            units.time(row.device_busy_ns),
            units.time(row.communication_ns),
            units.time(row.exposed_ns),
            units.time(row.waiting_ns),
            Text(row.name),
        )
    return table
