"""The operations of a step by operator, by source line, by module and by class."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from boundby.analysis.callers import with_callers
from boundby.analysis.kernel_classes import class_of
from boundby.model import Machine, Phase, Timeline
from boundby.model.assumptions.device import CACHED_BYTES
from boundby.model.assumptions.verdict import PAST_CACHE_ROOF, PAST_MEMORY_ROOF
from boundby.model.observation import SourceLine
from boundby.model.rows import NO_LINE, ClassName, ClassRow, CollectiveRow, LineRow, OpRow
from boundby.step.device_ops import matrix_flops
from boundby.step.host_time import LineTime
from boundby.step.op_record import OpRecord, dtype_of, shapes_of

_MOST_ROWS = 2000  # file size limit
_MOST_INSIDE = 100  # file size limit
_ASKS_FOR_COLLECTIVE = "c10d::"
_CLASSES: tuple[ClassName, ...] = (
    "contraction",
    "normalization",
    "elementwise",
    "movement",
    "communication",
    "unknown",
)


def group_of(record: OpRecord) -> tuple[str, str | None]:
    """The group and part of the account that an operation belongs to."""
    match record.bound:
        case "compute":
            return "compute", None
        case "memory":
            return "bandwidth", "device_memory"
        case "network":
            return "bandwidth", "network"
        case "host_link":
            return "bandwidth", "host_link"
        case "small":
            return "overhead", "small_kernels"
        case "python":
            return "overhead", "python"
        case _:
            return "unknown", None


def op_rows(op_records: list[OpRecord], timeline: Timeline, machine: Machine) -> list[OpRow]:
    """One row per operator, line and shapes; the longest first."""
    gathered: dict[tuple[object, ...], list[OpRecord]] = defaultdict(list)
    shapes: dict[int, str] = {}
    for record in op_records:
        if record.call >= 0 and record.call not in shapes:
            shapes[record.call] = shapes_of(timeline.calls[record.call])
        key = (record.name, record.bound, record.source, record.inside, shapes.get(record.call, ""))
        gathered[key].append(record)
    rows = [_op_row(records, timeline, machine, shapes) for records in gathered.values()]
    rows.sort(key=lambda row: -row.ns)
    return rows[:_MOST_ROWS]


def _op_row(
    records: list[OpRecord], timeline: Timeline, machine: Machine, shapes: dict[int, str]
) -> OpRow:
    first = records[0]
    ns = sum(record.ns for record in records)
    costs = [record.cost for record in records if record.cost is not None]
    floors = [record.floor_ns for record in records if record.floor_ns is not None]
    floor = sum(floors) if len(floors) == len(records) else None
    # On a CPU an operation is small if it is too short, compared with its overhead, to be compared.
    comparable = first.bound != "small" or len(timeline.device) > 0
    fraction = floor / ns if floor is not None and ns and comparable else None
    suspect = fraction is not None and fraction > _light_limit(machine, first)
    return OpRow(
        name=first.name,
        op_class=class_of(first),
        where=_entry(timeline.sources, first.source),
        inside=_entry(timeline.sources, first.inside),
        module=_common_module({_entry(timeline.modules, record.module) for record in records}),
        phase=Phase(first.phase).name.lower(),
        shapes=shapes.get(first.call, ""),
        dtype=dtype_of(timeline.calls[first.call]) if first.call >= 0 else None,
        count=len(records),
        ns=ns,
        median_ns=statistics.median(record.ns for record in records),
        deviation_ns=statistics.pstdev(record.ns for record in records),
        floor_ns=floor,
        excess_ns=ns - floor if floor is not None else None,
        flops=sum(cost.total_flops for cost in costs) if costs else None,
        bytes=sum(cost.bytes for cost in costs) if costs else None,
        bound=first.bound,
        roof_fraction=fraction,
        roof_suspect=suspect,
        upper_bound=first.bound == "memory" and any(cost.upper_bound for cost in costs),
    )


def above_roofline(op_records: Sequence[OpRecord], machine: Machine) -> float:
    """The share of the operators' time in those that are faster than their roofline minimum."""
    whole = sum(record.ns for record in op_records)
    above = sum(
        record.ns
        for record in op_records
        if record.floor_ns is not None
        and record.floor_ns > _light_limit(machine, record) * record.ns
    )
    return above / whole if whole else 0.0


def _common_module(modules: set[str | None]) -> str | None:
    """The module that contains all of some operations."""
    paths = [module.split(".") for module in modules if module]
    if len(paths) < len(modules):
        return None
    shared = []
    for level in zip(*paths, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared) or None


def _light_limit(machine: Machine, one: OpRecord) -> float:
    """How far beyond its roof an operator may seem before it is suspect."""
    cost = one.cost
    if one.bound == "compute":
        return PAST_MEMORY_ROOF.value
    if cost is None or cost.upper_bound or one.bound != "memory":
        return float("inf")
    if machine.rate("memory.cache") is None and cost.bytes < CACHED_BYTES.value:
        return float("inf")
    roof = machine.memory_roof(cost.footprint)
    return (
        PAST_MEMORY_ROOF.value
        if roof is None or roof.name == "memory.dram"
        else PAST_CACHE_ROOF.value
    )


class _Piece(NamedTuple):
    """A part of the step at one place: by group of the account, and by part of the group."""

    place: int
    group: str
    part: str | None
    ns: float
    floor_ns: float = 0.0


def line_rows(
    op_records: list[OpRecord],
    spent: Sequence[LineTime],
    timeline: Timeline,
    wall_ns: float,
    texts: Mapping[str, SourceLine],
) -> list[LineRow]:
    """The whole step by source line; backward operations at the line of their forward."""
    pieces = [_record_piece(record, record.source) for record in op_records]
    pieces += [
        _Piece(line_time.source, "overhead", line_time.label, line_time.ns) for line_time in spent
    ]
    within: dict[str, list[_Piece]] = defaultdict(list)
    for record in op_records:
        if record.inside >= 0 and record.source >= 0:
            within[timeline.sources[record.source]].append(_record_piece(record, record.inside))
    for line_time in spent:
        if line_time.inside >= 0 and line_time.source >= 0:
            piece = _Piece(line_time.inside, "overhead", line_time.label, line_time.ns)
            within[timeline.sources[line_time.source]].append(piece)
    rows = []
    for row in _rows_by(pieces, timeline.sources, wall_ns):
        inside = _rows_by(within[row.where], timeline.sources, wall_ns)
        shown = [_with_text(inner, texts) for inner in inside[:_MOST_INSIDE]]
        rows.append(msgspec.structs.replace(_with_text(row, texts), inside=shown))
    return with_callers(rows, op_records, timeline)


def module_rows(op_records: list[OpRecord], timeline: Timeline, wall_ns: float) -> list[LineRow]:
    pieces = [_record_piece(record, record.module) for record in op_records]
    return _rows_by(pieces, timeline.modules, wall_ns)


def _record_piece(record: OpRecord, place: int) -> _Piece:
    return _Piece(place, *group_of(record), record.exposed_ns, record.floor_ns or 0.0)


def _rows_by(pieces: Sequence[_Piece], names: list[str], wall_ns: float) -> list[LineRow]:
    total: dict[int, float] = defaultdict(float)
    floors: dict[int, float] = defaultdict(float)
    groups: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    parts: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for piece in pieces:
        total[piece.place] += piece.ns
        floors[piece.place] += piece.floor_ns
        groups[piece.place][piece.group] += piece.ns
        if piece.part is not None:
            parts[piece.place][piece.part] += piece.ns
    rows = [
        LineRow(
            where=_entry(names, place) or NO_LINE,
            ns=ns,
            share=ns / wall_ns if wall_ns else 0.0,
            floor_ns=floors[place],
            groups=dict(groups[place]),
            parts=dict(parts[place]),
        )
        for place, ns in total.items()
    ]
    rows.sort(key=lambda row: -row.ns)
    return rows[:_MOST_ROWS]


def class_rows(op_records: list[OpRecord]) -> list[ClassRow]:
    """Classes of operators: little of the arithmetic may take most of the time."""
    ns: dict[str, float] = defaultdict(float)
    flops: dict[str, float] = defaultdict(float)
    for record in op_records:
        name = class_of(record)
        ns[name] += record.ns
        flops[name] += record.cost.total_flops if record.cost else 0.0
    total_ns, total_flops = sum(ns.values()), sum(flops.values())
    contraction = flops["contraction"] / ns["contraction"] if ns["contraction"] else None
    rows = []
    for name in _CLASSES:
        if not ns[name]:
            continue
        rate = flops[name] / ns[name] * 1e9 if flops[name] else None
        rows.append(
            ClassRow(
                name=name,
                flops_share=flops[name] / total_flops if total_flops else 0.0,
                time_share=ns[name] / total_ns,
                ns=ns[name],
                flops_per_s=rate,
                slower_than_contractions=contraction * 1e9 / rate
                if contraction and rate and name != "contraction"
                else None,
            )
        )
    return rows


def collective_rows(op_records: list[OpRecord]) -> list[CollectiveRow]:
    """Collectives by name and message size, the longest first.

    A message is as large as the larger of its input and output. A call whose collective another
    thread runs is not counted beside it.
    """
    gathered: dict[tuple[str, float | None], list[OpRecord]] = defaultdict(list)
    for record in op_records:
        if record.bound == "network":
            cost = record.cost
            size = max(cost.bytes_read, cost.bytes_written) if cost else None
            gathered[record.name, size].append(record)
    run = {size for name, size in gathered if not name.startswith(_ASKS_FOR_COLLECTIVE)}
    rows = []
    for (name, size), records in gathered.items():
        if name.startswith(_ASKS_FOR_COLLECTIVE) and size in run:
            continue
        ns = sum(record.ns for record in records)
        rows.append(
            CollectiveRow(
                name=name,
                bytes=size,
                count=len(records),
                ns=ns,
                exposed_ns=sum(record.exposed_ns for record in records),
                bytes_per_s=size * len(records) / ns * 1e9 if size and ns else None,
            )
        )
    return sorted(rows, key=lambda row: -row.ns)


def _entry(table: list[str], index: int) -> str | None:
    return table[index] if 0 <= index < len(table) else None


def _with_text(row: LineRow, texts: Mapping[str, SourceLine]) -> LineRow:
    source_line = texts.get(row.where)
    if source_line is None:
        return row
    return msgspec.structs.replace(row, text=source_line.text, function=source_line.function)


def total_matrix_flops(op_records: list[OpRecord]) -> dict[str, float]:
    """Matrix arithmetic by unit."""
    units: dict[str, float] = defaultdict(float)
    for record in op_records:
        if record.cost is not None and matrix_flops(record.cost):
            for unit, amount in record.cost.flops.items():
                if unit.startswith("matmul."):
                    units[unit] += amount
    return dict(units)
