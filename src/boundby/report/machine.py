"""A machine's roofs for a terminal: measured beside the datasheet, and what they mean."""

from __future__ import annotations

import datetime

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from boundby.model import Machine, Roof, units

_SECTIONS = (
    ("matmul.", "matrix products, bursts"),
    ("vector.", "vector units"),
    ("memory.", "memory"),
    ("host_link.", "host link"),
)
_OVERHEADS = (
    ("eager_op_ns", "host, one eager operator"),
    ("trained_op_ns", "host, one with its part in backward"),
    ("launch_ns", "host, one kernel launch"),
    ("compiled_call_ns", "host, one call of compiled code"),
    ("compiled_kernel_ns", "host, each kernel it launches"),
    ("trained_kernel_ns", "host, each in compiled training"),
    ("sync_ns", "sync round trip (.item())"),
    ("graph_kernel_ns", "one kernel in a replayed graph"),
    ("graph_gap_ns", "gap between kernels there"),
    ("long_graph_gap_ns", "gap there, after long kernels"),
    ("shortest_kernel_ns", "the shortest kernel"),
    ("kernel_gap_ns", "gap between backlogged kernels"),
    ("long_kernel_gap_ns", "gap after long backlogged ones"),
    ("memory_t0_ns", "fixed cost of a memory pass"),
    ("python_add_ns", "one addition in Python"),
)
_PATTERNS = {"read", "write", "copy", "add"}
_SUSTAINED = ".sustained"

_HEADINGS = ("measured", "sustained", "datasheet", "of it", "± spread")


class MachineReport:
    """Renders a `Machine`; computes nothing."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        machine = self._machine
        yield Text.assemble((title(machine), "bold"))
        yield Text(_provenance(machine), style="dim")
        yield Padding(_roofs_table(machine), (1, 0, 0, 0))
        yield Padding(_overheads_table(machine), (1, 0, 0, 0))
        yield Padding(Group(*_meanings(machine)), (1, 0, 0, 0))
        for warning in machine.warnings:
            yield Text.assemble(("! ", "yellow"), warning)


def title(machine: Machine) -> str:
    """The device in one line."""
    parts = [machine.device]
    if machine.chip:
        parts.append(f"datasheet: {machine.chip}")
    if machine.kind == "cpu":
        parts.append(f"{machine.threads} threads")
    return " · ".join(parts)


def age(machine: Machine) -> str:
    """How old the measurement is, in words."""
    if machine.measured_at is None:
        return "not measured"
    measured = datetime.datetime.fromisoformat(machine.measured_at)
    seconds = (datetime.datetime.now(datetime.UTC) - measured).total_seconds()
    return f"measured {units.age(seconds)}"


def _provenance(machine: Machine) -> str:
    parts = [age(machine)]
    if machine.quick:
        parts.append("quick look, wider error: run without --quick for roofs to rely on")
    parts += [f"driver {machine.driver}", f"torch {machine.torch}"]
    return " · ".join(parts)


def _roofs_table(machine: Machine) -> Table:
    """Columns that say something of any roof; where it is narrow, only the last is broken."""
    sections = {
        heading: [
            (roof.name.removeprefix(prefix), _values(machine, roof), roof.note or "")
            for roof in machine.roofs
            if roof.name.startswith(prefix) and _shown(roof)
        ]
        for prefix, heading in _SECTIONS
    }
    rows = [row for section in sections.values() for row in section]
    said = {heading for _, values, _ in rows for heading, text in values.items() if text != "-"}
    headings = [heading for heading in _HEADINGS if heading in said]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("roof", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("best at", style="dim")
    for section, its in sections.items():
        if its:
            table.add_row(Text(section, style="italic"))
        for name, values, note in its:
            table.add_row(Text(f"  {name}"), *(values[one] for one in headings), Text(note))
    return table


def _values(machine: Machine, roof: Roof) -> dict[str, str]:
    sustained = units.rate(machine.rate(f"{roof.name}{_SUSTAINED}"), roof.unit).split(" ")[0]
    values = (
        units.rate(roof.value, roof.unit),
        sustained,
        units.rate(roof.datasheet, roof.unit),
        units.share(roof.value / roof.datasheet if roof.datasheet else None),
        units.share(roof.spread),
    )
    return dict(zip(_HEADINGS, values, strict=True))


def _shown(roof: Roof) -> bool:
    """One line a level; the single access patterns stay in the JSON."""
    return not roof.name.endswith(_SUSTAINED) and roof.name.rsplit(".", 1)[-1] not in _PATTERNS


def _overheads_table(machine: Machine) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("overhead", no_wrap=True)
    table.add_column("each", justify="right", no_wrap=True)
    for field, words in _OVERHEADS:
        value = getattr(machine.overheads, field)
        if value is not None:
            table.add_row(f"  {words}", units.time(value))
    return table


def _meanings(machine: Machine) -> list[Text]:
    lines = []
    ridges = [
        f"{roof.name.removeprefix('matmul.')} {ridge:.{0 if ridge >= 1 else 2}f}"
        for roof in machine.roofs
        if roof.name.startswith("matmul.") and not roof.name.endswith(_SUSTAINED)
        if (ridge := machine.ridge(roof.name)) is not None
    ]
    if ridges:
        lines.append(_meaning("ridge point, FLOP per byte", ", ".join(ridges)))
    if machine.pointwise_ops:
        words = f"memory-bound up to {machine.pointwise_ops:.0f} operations per element"
        lines.append(_meaning("a float32 pointwise chain is", words))
    if machine.critical_batch:
        rows = machine.critical_batch
        words = "compute-bound " + (f"from {rows:.0f} rows" if rows >= 1 else "with any rows")
        lines.append(_meaning("a bfloat16 product with large weights is", words))
    if machine.flops_per_python_add:
        words = f"{units.count(machine.flops_per_python_add)} FLOPs of this device"
        lines.append(_meaning("one addition in Python takes as long as", words))
    return lines


def _meaning(subject: str, words: str) -> Text:
    return Text.assemble((subject + " ", "dim"), words)
