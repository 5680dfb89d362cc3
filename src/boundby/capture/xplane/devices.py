"""The device planes of a profile: kernels of GPUs, instructions of TPUs and of CPUs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from boundby.capture.xplane.planes import Line, Plane, Stats, StatValue
from boundby.capture.xplane.rows import NONE, DeviceRows, Names
from boundby.model import DeviceKind
from boundby.model.intervals import union
from boundby.model.timeline import Ints

_DEVICE = re.compile(r"^/device:(?P<kind>GPU|TPU|CUSTOM)[^:]*:(?P<number>\d+)")
_STREAM = re.compile(r"^Stream #(\d+)")
_INSTRUCTIONS = re.compile(r"^(?:Async )?XLA Ops$")
_COLLECTIVE = re.compile(r"nccl|rccl|AllReduce|AllGather|ReduceScatter|all2all", re.IGNORECASE)
_SIZE = re.compile(r"(?:size|num_bytes):(\d+)")
_COPY_KERNEL = re.compile(r"^Memcpy(?:(H2D)|(D2H)|(D2D))?|copyBuffer")
_COLLECTIVE_INSTRUCTION = re.compile(
    r"^(?:all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all"
    r"|collective-permute|collective-broadcast|send|recv)\b"
)
_LARGEST = 1 << 62  # larger numbers are damage
# Names of events that are bookkeeping of the CPU's executor, not instructions.
_END = "end: "
_EXECUTOR = ("ThunkExecutor::Execute", "TfrtCpuExecutable::Execute")
# The name of a row for time in which a program ran without an event.
UNCOVERED = "no operator event"


class DevicePlane(NamedTuple):
    """A device, and what ran on it."""

    name: str | None
    kind: str  # "cuda", "hip", "tpu", "cpu"
    number: int
    stats: Stats
    rows: DeviceRows


class _Row(NamedTuple):
    start: int
    duration: int
    kind: int
    name: int
    stream: int
    correlation: int
    operation: int
    module: int
    program: int
    run: int
    graph: bool
    bytes: int


def device_planes(planes: Iterable[Plane], names: Names) -> list[DevicePlane]:
    """Every device on which something ran; the host's CPU if there is no other."""
    planes = list(planes)
    found = []
    for plane in planes:
        match = _DEVICE.match(plane.name)
        if match is None:
            continue
        rows = _gpu_rows(plane, names) or _tpu_rows(plane, names)
        if rows:
            kind = _kind(match["kind"], plane.stats)
            found.append(_plane(plane, kind, int(match["number"]), rows))
    if found:
        return found
    for plane in planes:
        if plane.name.startswith("/host:CPU"):
            rows = _cpu_rows(plane, names)
            if rows:
                found.append(_plane(plane, "cpu", 0, rows))
    return found


def _plane(plane: Plane, kind: str, number: int, rows: list[_Row]) -> DevicePlane:
    rows.sort(key=lambda row: (row.start, -row.duration))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    small = {"kind": np.int8, "name": np.int32, "operation": np.int32, "module": np.int32}
    table = DeviceRows(
        **{
            name: column.astype(small.get(name, np.bool_ if name == "graph" else np.int64))
            for name, column in zip(_Row._fields, columns, strict=True)
        }
    )
    name = plane.stats.get("gpu_device_name") or plane.stats.get("device_type_string")
    return DevicePlane(name if isinstance(name, str) else None, kind, number, plane.stats, table)


def _kind(plane: str, stats: Stats) -> str:
    if plane != "GPU":
        return "tpu"
    return "hip" if str(stats.get("device_vendor", "")).upper() == "AMD" else "cuda"


def _gpu_rows(plane: Plane, names: Names) -> list[_Row]:
    """Streams; lines that a viewer derived from them repeat the same events."""
    rows: list[_Row] = []
    for line in plane.lines:
        if match := _STREAM.match(line.name):
            rows += _rows(plane, line, names, int(match[1]), _kernel_kind)
    return rows


def _rows(
    plane: Plane,
    line: Line,
    names: Names,
    stream: int,
    kind_of: Callable[[str, Stats], DeviceKind],
) -> list[_Row]:
    rows = []
    starts, durations = line.start_ns.tolist(), line.duration_ns.tolist()
    for index, event in enumerate(line.event.tolist()):
        stats = plane.event_stats(line, index)
        name = plane.event_name(event)
        operation = _text(stats.get("hlo_op"))
        details = _text(stats.get("memcpy_details")) or _text(
            stats.get("Memset_details") or stats.get("memset_details")
        )
        size = _SIZE.search(details)
        module = _text(stats.get("hlo_module"))
        rows.append(
            _Row(
                starts[index],
                durations[index],
                int(kind_of(name, stats)),
                names.number(name),
                stream,
                _whole(stats.get("correlation_id")),
                names.number(operation) if operation else NONE,
                names.number(module) if module else NONE,
                _whole(stats.get("program_id")),
                _run(stats.get("run_id")),
                "cuda_graph_id" in stats,
                min(int(size[1][:19]), _LARGEST) if size else NONE,
            )
        )
    return rows


def _kernel_kind(name: str, stats: Stats) -> DeviceKind:
    if name.startswith("Memset"):
        return DeviceKind.MEMSET
    if "hlo_op" not in stats and "copyBuffer" in name:
        return DeviceKind.COPY_H2D  # the runtime's own kernel: instructions say what they are
    match = _COPY_KERNEL.match(name)
    if match is not None and name.startswith("Memcpy"):
        return (
            DeviceKind.COPY_H2D
            if match[1]
            else DeviceKind.COPY_D2H
            if match[2]
            else DeviceKind.COPY_D2D
        )
    return DeviceKind.COLLECTIVE if _COLLECTIVE.search(name) else DeviceKind.KERNEL


def _tpu_rows(plane: Plane, names: Names) -> list[_Row]:
    """Instructions; those inside a loop or a call lie inside its event, which they replace."""
    modules = _module_spans(plane)
    rows: list[_Row] = []
    for stream, line in enumerate(plane.lines):
        if not _INSTRUCTIONS.match(line.name):
            continue
        found = [
            _named_in_module(row, plane, line, index, names, modules)
            for index, row in enumerate(_rows(plane, line, names, stream, _instruction_kind))
        ]
        rows += innermost(found)
    return rows


def _named_in_module(
    row: _Row,
    plane: Plane,
    line: Line,
    index: int,
    names: Names,
    modules: list[tuple[int, int, str, int]],
) -> _Row:
    """A TPU's event is named by its instruction's text, and lies in the event of its module."""
    entry = plane.names.get(int(line.event[index]))
    text = (entry.display or entry.name) if entry else ""
    operation = text.removeprefix("%").split(" ", 1)[0]
    module, program = row.module, row.program
    at = np.searchsorted([start for start, *_ in modules], row.start, side="right") - 1
    if at >= 0 and row.start < modules[at][1]:
        if module == NONE:
            module = names.number(modules[at][2])
        program = modules[at][3] if program == NONE else program
    operation_number = names.number(operation) if row.operation == NONE else row.operation
    return row._replace(
        name=operation_number,
        operation=operation_number,
        module=module,
        program=program,
        run=int(at) if row.run == NONE else row.run,
    )


def _module_spans(plane: Plane) -> list[tuple[int, int, str, int]]:
    """Start, end, name and number of each program's execution: "jit_step(1234)"."""
    spans = []
    for line in plane.lines:
        if line.name != "XLA Modules":
            continue
        for index, event in enumerate(line.event.tolist()):
            name, _, number = plane.event_name(event).partition("(")
            digits = number.rstrip(")")
            program = int(digits) if digits.isdecimal() and len(digits) < 19 else NONE
            start = int(line.start_ns[index])
            spans.append((start, start + int(line.duration_ns[index]), name, program))
    return sorted(spans)


def innermost(rows: list[_Row]) -> list[_Row]:
    """The same time without events around others: of those, only what nothing inside covers."""
    rows = sorted(rows, key=lambda row: (row.start, -row.duration))
    found: list[_Row] = []
    stack: list[tuple[_Row, int]] = []  # a row, and the time from which on it is not yet covered

    def close(until: int) -> None:
        while stack and stack[-1][0].start + stack[-1][0].duration <= until:
            row, since = stack.pop()
            end = row.start + row.duration
            if end > since or since == row.start:
                found.append(row._replace(start=since, duration=end - since))
            if stack:
                stack[-1] = (stack[-1][0], max(end, stack[-1][1]))

    for row in rows:
        close(row.start)
        if stack:
            around, since = stack[-1]
            around_end = around.start + around.duration
            if row.start > since:
                found.append(around._replace(start=since, duration=row.start - since))
            row = row._replace(duration=min(row.duration, around_end - row.start))
            stack[-1] = (around, max(since, row.start))
        stack.append((row, row.start))
    close(_LARGEST)
    return found


def _instruction_kind(name: str, stats: Stats) -> DeviceKind:
    text = name.removeprefix("%")
    return DeviceKind.COLLECTIVE if _COLLECTIVE_INSTRUCTION.match(text) else DeviceKind.KERNEL


def _cpu_rows(plane: Plane, names: Names) -> list[_Row]:
    """Instructions of a CPU, each on the thread that executed it."""
    rows: list[_Row] = []
    executing: list[tuple[int, int]] = []
    for stream, line in enumerate(plane.lines):
        if line.name.startswith("Host Threads"):
            continue
        kept = [
            row
            for row in _rows(plane, line, names, stream, _instruction_kind)
            if row.operation != NONE and not names.table[row.name].startswith(_END)
        ]
        rows += innermost(kept)
        executing += _executor_spans(plane, line)
    return rows + _uncovered(rows, executing, names.number(UNCOVERED), len(plane.lines))


def _executor_spans(plane: Plane, line: Line) -> list[tuple[int, int]]:
    """When the executor of programs was active on a thread."""
    keys = [key for key, entry in plane.names.items() if entry.name.startswith(_EXECUTOR)]
    rows = np.flatnonzero(np.isin(line.event, keys) & (line.duration_ns > 0))
    starts, ends = line.start_ns[rows], (line.start_ns + line.duration_ns)[rows]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _uncovered(
    rows: list[_Row], executing: list[tuple[int, int]], name: int, stream: int
) -> list[_Row]:
    """Rows for the time within a program's execution that no instruction's event covers."""
    runs: dict[tuple[int, int, int], tuple[int, int]] = {}
    for row in rows:
        if row.run == NONE:
            continue
        key = (row.run, row.program, row.module)
        first, last = runs.get(key, (row.start, row.start))
        runs[key] = (min(first, row.start), max(last, row.start + row.duration))
    if not runs:
        return []
    spans = np.array([*executing, *runs.values()], np.int64)
    began, ended = union(spans[:, 0], spans[:, 1] - spans[:, 0])
    busy = union(np.array([row.start for row in rows]), np.array([row.duration for row in rows]))
    by_start = sorted((first, key) for key, (first, _) in runs.items())
    starts = [first for first, _ in by_start]
    found = []
    edges = np.unique(np.concatenate([began, ended, *busy]))
    for first, last in pairwise(edges.tolist()):
        if not _within(first, began, ended) or _within(first, *busy):
            continue
        # Time directly before the first instruction of a run is its beginning.
        at = max(0, bisect_right(starts, last) - 1)
        run, program, module = by_start[at][1]
        kind = int(DeviceKind.KERNEL)
        place = (name, stream, NONE, NONE, module, program, run, False, NONE)
        found.append(_Row(first, last - first, kind, *place))
    return found


def _within(time: int, begins: Ints, ends: Ints) -> bool:
    at = int(np.searchsorted(begins, time, side="right")) - 1
    return at >= 0 and time < int(ends[at])


def _text(value: StatValue | None) -> str:
    return value if isinstance(value, str) else ""


def _run(value: StatValue | None) -> int:
    """A run's number, which may be negative."""
    return value & (_LARGEST - 1) if isinstance(value, int) else NONE


def _whole(value: StatValue | None) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and 0 <= value < _LARGEST else NONE
