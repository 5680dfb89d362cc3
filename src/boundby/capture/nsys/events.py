"""Rows of an export as the events of a torch profiler trace, which contain the same facts.

Times are ns from the start of the session. Ranges written by `torch.autograd.profiler.emit_nvtx`
are operators; ranges named as steps mark the steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from boundby.capture.kineto.events import NONE, STEP_MARKER, Arguments, Event
from boundby.capture.nsys.tables import Export

_COPY_NAMES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
_MEMORY_NAMES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
# pushed and popped, started and ended; the same from the operating system
_RANGES = (59, 60, 70, 71)
_STEP = re.compile(r"(?:^|[^a-z])(?:step|iter|iteration|batch)[\W_]*\d*\W*$", re.IGNORECASE)
_OPERATOR = re.compile(r"^(\w+::\w+(?:\.\w+)?)(?:, (?:seq|op_id|sizes) = .*)?$", re.DOTALL)
_SEQUENCE = re.compile(r", seq = (\d+)")
_VERSION = re.compile(r"_v\d+$")
# The number of a process within a thread's global number.
_PROCESS_SHIFT, _PROCESS_MASK = 24, 0xFFFFFF
_CORRELATION_STRIDE = 1 << 40  # keeps processes apart
_PREFIX = "CUPTI_ACTIVITY_KIND_"
GRAPHS = f"{_PREFIX}GRAPH_TRACE"


class _Range(NamedTuple):
    start: int
    end: int
    text: str
    thread: int


class _Processes:
    """Makes call numbers unique: each process counts its own from one."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}

    def correlation(self, number: int | None, owner: int | None) -> int:
        if not number:
            return NONE
        process = ((owner or 0) >> _PROCESS_SHIFT) & _PROCESS_MASK
        return number + _CORRELATION_STRIDE * self._index.setdefault(process, len(self._index))


def export_events(export: Export) -> list[Event]:
    """All events of an export that boundby uses."""
    processes = _Processes()
    return [
        *_runtime_calls(export, processes),
        *_kernels(export, processes),
        *_graphs(export, processes),
        *_copies(export, processes),
        *_fills(export, processes),
        *_nvtx(export),
    ]


def device_properties(export: Export) -> dict[str, Any]:
    """The devices, as the torch profiler lists them."""
    wanted = ("id", "name", "totalMemory", "smCount", "computeMajor", "computeMinor")
    keys = ("id", "name", "totalGlobalMem", "numSms", "computeMajor", "computeMinor")
    listed = [dict(zip(keys, row, strict=True)) for row in export.rows("TARGET_INFO_GPU", wanted)]
    tables = (f"{_PREFIX}KERNEL", GRAPHS)
    ran = {row[0] for table in tables for row in export.rows(table, ("deviceId",))}
    used = [device for device in listed if device["id"] in ran]
    return {"deviceProperties": used or listed}


def _event(category: str, name: str, start: int, end: int, tid: int, args: Arguments) -> Event:
    return Event(
        ph="X", cat=category, name=name, pid=0, tid=tid, ts=start / 1e3, dur=(end - start) / 1e3,
        args=args,
    )  # fmt: skip


def _sound(start: Any, end: Any) -> bool:
    return isinstance(start, int) and isinstance(end, int) and end >= start


def _runtime_calls(export: Export, processes: _Processes) -> Iterator[Event]:
    wanted = ("start", "end", "nameId", "globalTid", "correlationId")
    for start, end, name, thread, number in export.rows(f"{_PREFIX}RUNTIME", wanted):
        if _sound(start, end):
            called = _VERSION.sub("", export.texts.get(name, "unnamed runtime call"))
            args = Arguments(correlation=processes.correlation(number, thread))
            yield _event("cuda_runtime", called, start, end, thread or 0, args)


def _kernels(export: Export, processes: _Processes) -> Iterator[Event]:
    wanted = (
        "start", "end", "demangledName", "shortName", "deviceId", "streamId", "correlationId",
        "globalPid", "graphNodeId", "graphId",
    )  # fmt: skip
    for row in export.rows(f"{_PREFIX}KERNEL", wanted):
        start, end, name, short, device, stream, number, owner, node, graph = row
        if _sound(start, end):
            called = export.texts.get(name) or export.texts.get(short) or "unnamed kernel"
            args = Arguments(
                correlation=processes.correlation(number, owner),
                device=device,
                stream=stream,
                graph=graph or NONE,
                graph_node=node or NONE,
            )
            yield _event("kernel", called, start, end, stream or 0, args)


def _graphs(export: Export, processes: _Processes) -> Iterator[Event]:
    """Replayed graphs, each recorded as a whole, which is what `nsys profile` does by default."""
    wanted = (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId",
    )  # fmt: skip
    for start, end, device, stream, number, owner, graph in export.rows(GRAPHS, wanted):
        if _sound(start, end):
            args = Arguments(
                correlation=processes.correlation(number, owner),
                device=device,
                stream=stream,
                graph=graph or NONE,
            )
            yield _event("kernel", f"CUDA graph {graph}", start, end, stream or 0, args)


def _copies(export: Export, processes: _Processes) -> Iterator[Event]:
    def name(kind: int | None, source: int | None, target: int | None) -> str:
        places = f"{_MEMORY_NAMES.get(source or 0)} -> {_MEMORY_NAMES.get(target or 0)}"
        return f"Memcpy {_COPY_NAMES.get(kind or 0, 'unknown')} ({places})"

    columns = ("copyKind", "srcKind", "dstKind")
    yield from _transfers(export, processes, "gpu_memcpy", f"{_PREFIX}MEMCPY", columns, name)


def _fills(export: Export, processes: _Processes) -> Iterator[Event]:
    def name() -> str:
        return "Memset (Device)"

    yield from _transfers(export, processes, "gpu_memset", f"{_PREFIX}MEMSET", (), name)


def _transfers(
    export: Export,
    processes: _Processes,
    category: str,
    table: str,
    columns: tuple[str, ...],
    name: Callable[..., str],
) -> Iterator[Event]:
    wanted = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes")
    for row in export.rows(table, wanted + columns):
        start, end, device, stream, number, owner, size = row[: len(wanted)]
        if _sound(start, end):
            args = Arguments(
                correlation=processes.correlation(number, owner),
                device=device,
                stream=stream,
                bytes=NONE if size is None else size,
            )
            yield _event(category, name(*row[len(wanted) :]), start, end, stream or 0, args)


def _nvtx(export: Export) -> Iterator[Event]:
    """Ranges; the longest that are named as steps become the step markers."""
    wanted = ("start", "end", "text", "textId", "eventType", "globalTid")
    ranges = [
        _Range(start, end, text or export.texts.get(number, ""), thread or 0)
        for start, end, text, number, kind, thread in export.rows("NVTX_EVENTS", wanted)
        if _sound(start, end) and (kind is None or kind in _RANGES)
    ]
    steps = _steps([one for one in ranges if _STEP.search(one.text)])
    for number, one in enumerate(steps):
        name = f"{STEP_MARKER}#{number}"
        yield _event("user_annotation", name, one.start, one.end, one.thread, Arguments())
    for one in ranges:
        operator = _OPERATOR.match(one.text)
        sequence = _SEQUENCE.search(one.text)
        args = Arguments(sequence=int(sequence[1]) if operator and sequence else NONE)
        category = "cpu_op" if operator else "user_annotation"
        name = operator[1] if operator else one.text or "unnamed range"
        yield _event(category, name, one.start, one.end, one.thread, args)


def _steps(named: list[_Range]) -> list[_Range]:
    """Ranges of one thread that follow each other, outermost first; a single one divides
    nothing."""
    found: list[_Range] = []
    for one in sorted(named, key=lambda one: (one.start, -one.end)):
        if not found or (one.thread == found[0].thread and one.start >= found[-1].end):
            found.append(one)
    return found if len(found) > 1 else []
