"""A diagnosis for a terminal: the verdict first, then the account, then the evidence."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from boundby.model import Machine, units
from boundby.model.diagnosis import NO_LINE, Diagnosis, KindOfStep, LineRow, RankRow, StepTimes
from boundby.report.findings import chips, findings
from boundby.report.machine import age
from boundby.report.proofs import ProofsReport
from boundby.report.words import COLOURS, counted, last_part

_BAR_CELLS = 40
_MOST_LINES = 8
_MOST_OPS = 10
_MOST_CAUSES = 4
_SHORTEST_LINE_SHARE = 0.005
# Of the lines of libraries that a line of the user's led to.
_MOST_INSIDE = 6
_SHORTEST_INSIDE_SHARE = 0.02
# A line with this share of the step, and so many kinds of modules in it, is looked into.
_MOSTLY_ONE_LINE, _FEWEST_MODULES = 0.5, 3
_NUMBER = re.compile(r"_\d+$")
_TEMPLATE = re.compile(r"[<(].*$", re.DOTALL)
_NAMESPACE = re.compile(r"^(?:void )?(?:\w+::)+")
PART_WORDS = {
    "device_memory": "device memory",
    "host_link": "host link",
    "network": "network",
    "python": "Python and framework",
    "launch": "launching",
    "sync": "syncs",
    "data": "waiting for data",
    "core": "waiting for a core",
    "small_kernels": "small kernels",
}
# The same, short enough for a column.
_CAUSES = {
    "python": "Python",
    "launch": "launch",
    "sync": "sync",
    "data": "data",
    "core": "no core",
    "small_kernels": "small",
}
_OUTSIDE = "(no line of the script)"
_TEXT_WIDTH = 100
_CAUSE_WORDS = {"sync": "after a sync", "data": "waiting for data"}


class DiagnosisReport:
    """Renders a `Diagnosis`; computes nothing.

    What a trace or a script named is data: it goes into `Text`, where brackets and colons mean
    nothing, never into a plain string, which rich would read as markup.
    """

    def __init__(self, diagnosis: Diagnosis) -> None:
        self._diagnosis = diagnosis

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        diagnosis = self._diagnosis
        yield verdict_line(diagnosis)
        yield Text(_step_line(diagnosis), style="dim")
        yield _spaced(_account(diagnosis))
        if diagnosis.findings or diagnosis.batches:
            yield _spaced(findings(diagnosis))
        if diagnosis.bigger_chips:
            yield _spaced(chips(diagnosis))
        if any(row.where != NO_LINE for row in diagnosis.lines):
            yield _spaced(_lines(diagnosis))
            modules = _modules(diagnosis)
            if modules is not None:
                yield _spaced(modules)
        if diagnosis.ops:
            yield _spaced(_ops(diagnosis))
        if diagnosis.classes:
            yield _spaced(_classes(diagnosis))
        if diagnosis.collectives:
            yield _spaced(_collectives(diagnosis))
        if diagnosis.ranks:
            yield _spaced(_ranks(diagnosis.ranks))
        if diagnosis.proofs:
            yield _spaced(ProofsReport(diagnosis, alone=False))
        yield _spaced(Group(*_evidence(diagnosis)))
        for warning in diagnosis.warnings:
            yield Text.assemble(("! ", "yellow"), warning)


def as_text(diagnosis: Diagnosis) -> str:
    """The report without colours, as a file or a log would hold it."""
    console = Console(file=io.StringIO(), width=_TEXT_WIDTH, color_system=None, highlight=False)
    console.print(DiagnosisReport(diagnosis))
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def verdict_line(diagnosis: Diagnosis) -> Text:
    """The answer in one line."""
    verdict = diagnosis.verdict
    colour = COLOURS[verdict.bound_by]
    if verdict.bound_by == "unknown":
        return Text.assemble(("bound by: unknown", f"bold {colour}"), f" ({verdict.why})")
    doubt = " (uncertain)" if verdict.uncertain else ""
    return Text.assemble((f"{verdict.bound_by}-bound", f"bold {colour}"), f"{doubt}: {verdict.why}")


def _step_line(diagnosis: Diagnosis) -> str:
    step = diagnosis.step
    low, high = step.wall_interval_ns
    seen = (
        f"{units.time(low)} to {units.time(high)}, "
        f"{counted(len(step.samples_ns), f'{step.wall_source} step')}"
    )
    parts = [
        step.kind if step.kind == "step" else f"{step.kind} step",
        f"{units.time(step.wall_ns)} ({seen if step.samples_ns else 'as given'})",
        diagnosis.machine.device,
        _roofs_words(diagnosis.machine),
    ]
    return " · ".join(parts)


def _roofs_words(machine: Machine) -> str:
    if machine.measured_at is not None:
        return f"roofs {age(machine)}{', quick look' if machine.quick else ''}"
    return f"roofs from the datasheet of {machine.chip}" if machine.chip else "no roofs known"


def _spaced(what: RenderableType) -> Padding:
    return Padding(what, (1, 0, 0, 0))


def _account(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for name, group in diagnosis.account.groups().items():
        read_profiler_tree = [
            f"{PART_WORDS.get(part, part)} {units.time(ns)}"
            for part, ns in sorted(group.parts.items(), key=lambda item: -item[1])
            if ns >= 0.001 * diagnosis.step.wall_ns
        ]
        if group.excess_ns and group.ns:
            read_profiler_tree.append(f"{units.time(group.excess_ns)} of it above the roofs' floor")
        table.add_row(
            Text(name, style=COLOURS[name]),
            Text("█" * round(group.share * _BAR_CELLS), style=COLOURS[name]),
            units.share(group.share),
            units.time(group.ns),
            ", ".join(read_profiler_tree),
        )
    return table


def _lines(diagnosis: Diagnosis) -> Table:
    table = _table("source lines", ("time", "share"), ("line", "code"))
    shown = [row for row in diagnosis.lines[:_MOST_LINES] if row.share >= _SHORTEST_LINE_SHARE]
    for row in shown:
        _add_line(table, row, _OUTSIDE if row.where == NO_LINE else row.where)
        for inner in row.inside[:_MOST_INSIDE]:
            if inner.share >= _SHORTEST_INSIDE_SHARE:
                _add_line(table, inner, f"  {last_part(inner.where)}")
    rest = diagnosis.lines[len(shown) :]
    if sum(row.share for row in rest) >= _SHORTEST_LINE_SHARE:
        ns, share = sum(row.ns for row in rest), sum(row.share for row in rest)
        table.add_row("", units.time(ns), units.share(share), counted(len(rest), "more line"), "")
    return table


def _modules(diagnosis: Diagnosis) -> Table | None:
    """The kinds of modules inside one line that is most of the step: `x = self.encoder(x)` does not
    say which of them take the time. None where the lines do."""
    longest = max(diagnosis.lines, key=lambda row: row.share)
    if longest.share < _MOSTLY_ONE_LINE or longest.inside:
        return None
    kinds: dict[str, list[LineRow]] = defaultdict(list)
    for row in diagnosis.modules:
        if row.where != NO_LINE:
            kinds[".".join(_NUMBER.sub("", part) for part in row.where.split(".")[-2:])].append(row)
    if len(kinds) < _FEWEST_MODULES:
        return None
    table = _table("modules", ("time", "share"), ("kind", ""))
    for row in sorted(map(_together, kinds, kinds.values()), key=lambda row: -row.ns)[
        :_MOST_INSIDE
    ]:
        if row.share >= _SHORTEST_INSIDE_SHARE:
            _add_line(table, row, row.where)
    return table


def _together(where: str, rows: Sequence[LineRow]) -> LineRow:
    groups: dict[str, float] = defaultdict(float)
    for row in rows:
        for group, ns in row.groups.items():
            groups[group] += ns
    return LineRow(
        where=where,
        ns=sum(row.ns for row in rows),
        share=sum(row.share for row in rows),
        groups=groups,
        text=f"{len(rows)} of them" if len(rows) > 1 else "",
    )


def _add_line(table: Table, row: LineRow, where: str) -> None:
    main = max(row.groups, key=lambda group: row.groups[group], default="unknown")
    # Of overhead the cause is what a person can do something about.
    causes = {part: ns for part, ns in row.parts.items() if part in _CAUSES}
    cause = max(causes, key=lambda part: causes[part], default=None)
    words = f"{main}: {_CAUSES[cause]}" if main == "overhead" and cause else main
    table.add_row(
        Text(words, style=COLOURS.get(main, "")),  # type: ignore[call-overload]
        units.time(row.ns),
        units.share(row.share),
        Text(where),
        Text(row.text or "", style="dim", no_wrap=True, overflow="ellipsis"),
    )


def _ops(diagnosis: Diagnosis) -> Table:
    table = _table("operators", ("time", "calls", "of roof"), ("operator", "shapes", "line"))
    for row in diagnosis.ops[:_MOST_OPS]:
        fraction = units.share(row.roof_fraction)
        table.add_row(
            row.bound + (" ?" if row.roof_suspect else ""),
            units.time(row.ns),
            str(row.count),
            f"under {fraction}" if row.upper_bound and row.roof_fraction else fraction,
            Text(short_name(row.name), no_wrap=True, overflow="ellipsis"),
            Text(row.shapes, style="dim", no_wrap=True, overflow="ellipsis"),
            Text(last_part(row.inside or row.where), no_wrap=True, overflow="ellipsis"),
        )
    return table


def _classes(diagnosis: Diagnosis) -> Table:
    table = _table("operator classes", ("FLOP share", "time share", "FLOP/s", "slower"), ())
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


def _collectives(diagnosis: Diagnosis) -> Table:
    table = _table("collectives", ("time", "exposed", "calls", "message", "bandwidth"), ())
    for row in diagnosis.collectives[:_MOST_LINES]:
        table.add_row(
            Text(short_name(row.name), no_wrap=True, overflow="ellipsis"),
            units.time(row.ns),
            units.time(row.exposed_ns),
            str(row.count),
            units.size(row.bytes),
            units.rate(row.bytes_per_s, "B/s"),
        )
    return table


def _ranks(ranks: list[RankRow]) -> Table:
    columns = ("step", "busy", "communication", "exposed", "waiting for others")
    table = _table("ranks", columns, ("file",))
    for row in sorted(ranks, key=lambda row: row.rank):
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


def short_name(name: str) -> str:
    """An operator's or a kernel's name without namespaces and template arguments."""
    if name.startswith("aten::"):
        return name.removeprefix("aten::")
    return (
        _NAMESPACE.sub(
            "", _TEMPLATE.sub("", name.replace("(anonymous namespace)::", ""))
        ).removeprefix("void ")
        or name
    )


def _table(first: str, numbers: tuple[str, ...], words: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in words:
        table.add_column(heading, overflow="fold")
    return table


def _phases(step: StepTimes) -> list[Text]:
    """What each phase takes the host, which on a CPU is all of it; a forward alone is the step."""
    on_device = step.device_busy_ns is not None
    if {phase.name for phase in step.phases} <= {"forward", "other"}:
        words = units.time(sum(phase.host_issue_ns for phase in step.phases))
        return [_fact("host alone takes", words)] if on_device and step.phases else []
    words = ", ".join(f"{p.name} {units.time(p.host_issue_ns)}" for p in step.phases)
    return [_fact("host alone takes" if on_device else "phases of other steps", words)]


def _evidence(diagnosis: Diagnosis) -> list[Text]:
    step, used = diagnosis.step, diagnosis.utilisation
    lines = []
    shares = [
        ("MFU", used.mfu, used.mfu_datasheet),
        ("HFU", used.hfu, used.hfu_datasheet),
    ]
    words = [
        f"{name} {units.share(share)}"
        + (f" ({units.share(sheet)} of datasheet)" if sheet and sheet != share else "")
        for name, share, sheet in shares
        if share is not None
    ]
    if used.bandwidth is not None:
        past = " ?" if used.bandwidth > 1 else ""
        words.append(f"memory bandwidth {units.share(used.bandwidth)}{past}")
    if used.device is not None:
        words.append(f"device busy {units.share(used.device)}")
    if words:
        lines.append(_fact("utilisation", " · ".join(words)))
    lines += _phases(step)
    if used.host_lead_ns is not None:
        lines.append(_fact("host ahead of device", f"{units.time(used.host_lead_ns)} (profiled)"))
    lines += [
        _fact(f"idle, {_CAUSE_WORDS[row.cause]}", f"{units.time(row.ns)}, {row.name}{at}")
        for row in diagnosis.idle[:_MOST_CAUSES]
        if row.ns >= _SHORTEST_LINE_SHARE * step.wall_ns
        for at in [f" at {row.where}" if row.where else ""]
    ]
    if len(step.samples_ns) > 1 and step.wall_source == "profiled":
        low, high = min(step.samples_ns), max(step.samples_ns)
        lines.append(_fact("steps in the trace", f"{units.time(low)} to {units.time(high)} each"))
    if step.dilation is not None:
        observed = f"the profiled step took {step.dilation:.2f}x a clean one"
        if step.inferred_share:
            observed += (
                f"; {units.share(step.inferred_share)} of the step is idle time, "
                "divided as in the profile"
            )
        lines.append(_fact("observer", observed))
    return lines + [_fact("also seen", _other_words(other)) for other in step.others]


def _other_words(other: KindOfStep) -> str:
    kind = "" if other.kind == "step" else f"{other.kind}: "
    return f"{kind}{counted(other.steps, 'step')} of {units.time(other.wall_ns)}"


def _fact(subject: str, words: str) -> Text:
    return Text.assemble((f"{subject}: ", "dim"), words)
