"""A machine's roofs for a terminal: measured, from the datasheet, and what follows from them."""

from __future__ import annotations

import datetime

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from boundby.model import Machine, Roof, units
from boundby.report.layout import Trimmed, spaced, warning_line

_SECTIONS = (
    ("matmul.", "matrix products (bursts)"),
    ("vector.", "vector units"),
    ("memory.", "memory"),
    ("host_link.", "host link"),
)
_OVERHEADS = (
    ("eager_op_ns", "host: eager operator"),
    ("trained_op_ns", "host: eager operator with its backward"),
    ("launch_ns", "host: kernel launch"),
    ("compiled_call_ns", "host: call of compiled code"),
    ("compiled_kernel_ns", "host: kernel launched by compiled code"),
    ("trained_kernel_ns", "host: the same, in training"),
    ("sync_ns", "sync round trip (.item())"),
    ("graph_kernel_ns", "kernel in a CUDA graph replay"),
    ("graph_gap_ns", "gap between kernels in a graph replay"),
    ("long_graph_gap_ns", "gap in a graph replay after a long kernel"),
    ("shortest_kernel_ns", "shortest kernel"),
    ("kernel_gap_ns", "gap between queued kernels"),
    ("long_kernel_gap_ns", "gap between queued kernels after a long one"),
    ("memory_t0_ns", "fixed cost of a pass over memory"),
    ("python_add_ns", "addition in Python"),
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
        yield Trimmed(
            [
                Text(title(machine), style="bold"),
                Text(_provenance(machine), style="dim"),
                spaced(_roofs_table(machine)),
                spaced(_overheads_table(machine)),
                spaced(Group(*_consequences(machine))),
                *map(warning_line, machine.warnings),
            ]
        )


def title(machine: Machine) -> str:
    """The device, its datasheet entry and its threads."""
    parts = [machine.device]
    if machine.chip:
        parts.append(f"datasheet: {machine.chip}")
    if machine.kind == "cpu":
        parts.append(f"{machine.threads} threads")
    return " · ".join(parts)


def age(machine: Machine) -> str:
    """How long ago the machine was measured."""
    if machine.measured_at is None:
        return "not measured"
    measured = datetime.datetime.fromisoformat(machine.measured_at)
    seconds = (datetime.datetime.now(datetime.UTC) - measured).total_seconds()
    return f"measured {units.age(seconds)}"


def _provenance(machine: Machine) -> str:
    parts = [age(machine)]
    if machine.quick:
        parts.append("quick measurement with wider error; run without --quick for accurate roofs")
    parts += [f"driver {machine.driver}", f"torch {machine.torch}"]
    return " · ".join(parts)


def _roofs_table(machine: Machine) -> Table:
    """The roofs by section; columns without any value are left out, only the last one wraps."""
    sections = {
        heading: [
            (roof.name.removeprefix(prefix), _values(machine, roof), roof.note or "")
            for roof in machine.roofs
            if roof.name.startswith(prefix) and _shown(roof)
        ]
        for prefix, heading in _SECTIONS
    }
    rows = [row for section in sections.values() for row in section]
    used = {heading for _, values, _ in rows for heading, text in values.items() if text != "-"}
    headings = [heading for heading in _HEADINGS if heading in used]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("roof", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("best at", style="dim")
    for section, section_rows in sections.items():
        if section_rows:
            table.add_row(Text(section, style="italic"))
        for name, values, note in section_rows:
            table.add_row(Text(f"  {name}"), *(values[heading] for heading in headings), Text(note))
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
    """One line per memory level; the single access patterns are only in the JSON."""
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


def _consequences(machine: Machine) -> list[Text]:
    lines = []
    ridges = [
        f"{roof.name.removeprefix('matmul.')} {ridge:.{0 if ridge >= 1 else 2}f}"
        for roof in machine.roofs
        if roof.name.startswith("matmul.") and not roof.name.endswith(_SUSTAINED)
        if (ridge := machine.ridge(roof.name)) is not None
    ]
    if ridges:
        lines.append(_consequence("ridge point, FLOP per byte", ", ".join(ridges)))
    if machine.pointwise_ops:
        words = f"memory-bound up to {machine.pointwise_ops:.0f} operations per element"
        lines.append(_consequence("float32 pointwise chains are", words))
    if machine.critical_batch:
        rows = machine.critical_batch
        words = "compute-bound " + (
            f"from {rows:.0f} rows" if rows >= 1 else "with any number of rows"
        )
        lines.append(_consequence("matrix products in bfloat16 with large weights are", words))
    if machine.flops_per_python_add:
        words = f"{units.count(machine.flops_per_python_add)} FLOPs of this device"
        lines.append(_consequence("one addition in Python takes as long as", words))
    return lines


def _consequence(subject: str, words: str) -> Text:
    return Text.assemble((subject + " ", "dim"), words)
