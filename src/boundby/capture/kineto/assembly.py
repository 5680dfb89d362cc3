"""One step's rows, sorted, linked and named: the Timeline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto import arguments
from boundby.capture.kineto.events import (
    BEGIN_CAPTURE,
    END_CAPTURE,
    HANDED_OVER_BYTES,
    NONE,
    PAGEABLE_TO_DEVICE,
    PAGEABLE_TO_HOST,
)
from boundby.capture.kineto.metadata import Metadata
from boundby.capture.kineto.names import clean
from boundby.capture.kineto.nesting import Rows, matching, nearest, order, parents
from boundby.capture.kineto.old_convolutions import complete
from boundby.capture.kineto.origins import Origins, named, trace_origins
from boundby.capture.kineto.rows import Columns, DeviceRows, HostRows
from boundby.capture.kineto.steps import Step, find_launches
from boundby.model import DeviceEvents, HostEvents, HostKind, Note, OpCall, PhaseMarks, Timeline
from boundby.model.kernel_names import kernel_name
from boundby.model.units import count

_GRAPH_LAUNCH = "GraphLaunch"
# A step in which a smaller share of the launches is captured is a step like others.
_MOSTLY_CAPTURED = 0.25
# With a larger share of device events without a launch, the host's part is unknown.
_MOSTLY_UNMATCHED = 0.5
_NOT_RECORDED = "launches that were not recorded"


@dataclass(slots=True, frozen=True)
class _Links:
    launch: Rows
    op: Rows
    graph: npt.NDArray[np.bool_]


def assemble(columns: Columns, step: Step, metadata: Metadata) -> Timeline:
    """The timeline of one step."""
    host = _host_rows(columns, step)
    device = _device_rows(columns, step)
    launch = matching(host.correlation, device.correlation)
    doubts = [*_doubts(host, device, launch), *_captured(host, columns.names)]
    if len(launch) and (launch == NONE).all():
        columns, host, launch = _launched_at_once(columns, host, step, len(launch))
    else:
        host = _with_launches(host, device, launch, columns.names)
    parent = parents(host)
    links = _link(host, device, parent, launch, columns.names)
    used, names = _compact([host.name, device.name], columns.names)
    origins = trace_origins(
        replace(host, name=used[0]), parent, [columns.names[n] for n in names], columns.stacks
    )
    calls, keys = _compact([host.call], range(len(columns.calls)))
    parsed = [arguments.parse(columns.calls[number]) for number in keys]
    call = complete(calls[0], parsed, origins.forward)
    kernels = [columns.names[n] for n in names]
    _set_list_dtypes(parsed, np.append(call, NONE)[links.op], used[1], kernels)
    return Timeline(
        start_ns=step.start_ns,
        end_ns=step.end_ns,
        host=_host_events(host, parent, used[0], call, origins, columns.threads),
        device=DeviceEvents(
            start_ns=device.start,
            duration_ns=device.duration,
            kind=device.kind,
            name=used[1],
            stream=device.stream,
            launch=links.launch,
            op=links.op,
            graph=links.graph,
            bytes=device.bytes,
            grid=device.grid,
        ),
        names=[clean(columns.names[number]) for number in names],
        sources=origins.sources,
        modules=origins.modules,
        calls=parsed,
        phases=_phase_marks(columns, step),
        device_name=metadata.device_name,
        device_kind=metadata.kind if len(device.start) else "cpu",
        rank=metadata.rank,
        world=metadata.world,
        label=step.label,
        notes=doubts,
    )


def _phase_marks(columns: Columns, step: Step) -> PhaseMarks | None:
    """The starts of phases in the host's window; None in a trace without such marks."""
    marks = columns.marks
    inside = (marks.start >= step.host_start_ns) & (marks.start < step.host_end_ns)
    if not inside.any():
        return None
    return PhaseMarks(start_ns=marks.start[inside], phase=marks.phase[inside])


def _host_rows(columns: Columns, step: Step) -> HostRows:
    """The host's rows in its window; rows that extend beyond its ends are cut there."""
    rows = columns.host
    inside = (rows.start < step.host_end_ns) & (rows.end > step.host_start_ns)
    inside |= (rows.duration == 0) & (rows.start == step.host_start_ns)
    host = rows.take(np.flatnonzero(inside))
    start = np.maximum(host.start, step.host_start_ns)
    end = np.minimum(host.end, step.host_end_ns)
    host = replace(host, start=start, duration=end - start)
    return host.take(order(host))


def _device_rows(columns: Columns, step: Step) -> DeviceRows:
    """Device work launched in the host's window, whenever it ran."""
    called = find_launches(columns).called
    rows = np.flatnonzero((called >= step.host_start_ns) & (called < step.host_end_ns))
    device = columns.device.take(rows)
    return device.take(np.argsort(device.start, kind="stable"))


def _launched_at_once(
    columns: Columns, host: HostRows, step: Step, devices: int
) -> tuple[Columns, HostRows, Rows]:
    """Add a host row that launches all of the step's device work at its beginning.

    Without any launch, the trace does not show whether the device waited for the host.
    """
    names, threads = [*columns.names, _NOT_RECORDED], [*columns.threads, NONE]
    row = dict.fromkeys(HostRows.__slots__, NONE) | {
        "start": min(step.start_ns, step.host_start_ns),
        "duration": 0,
        "kind": HostKind.LAUNCH,
        "name": len(columns.names),
        "thread": len(columns.threads),
    }
    columns_of = {name: getattr(host, name) for name in HostRows.__slots__}
    host = HostRows(
        *(np.append(old, np.array([row[name]], old.dtype)) for name, old in columns_of.items())
    )
    by_time = order(host)
    place = int(np.flatnonzero(by_time == len(by_time) - 1)[0])
    columns = replace(columns, names=names, threads=threads)
    return columns, host.take(by_time), np.full(devices, place, np.int32)


def _with_launches(host: HostRows, device: DeviceRows, launch: Rows, names: list[str]) -> HostRows:
    """A runtime call that device work refers to is a launch, whatever its name.

    A copy into pageable host memory returns only when it is done, a large one from it almost so: a
    sync.
    """
    kind = host.kind.copy()
    launching = launch[launch != NONE]
    kind[launching[kind[launching] == HostKind.RUNTIME]] = HostKind.LAUNCH
    waits = np.array([bool(PAGEABLE_TO_HOST.search(name)) for name in names] or [False])
    stages = np.array([bool(PAGEABLE_TO_DEVICE.search(name)) for name in names] or [False])
    waiting = waits[device.name] | (stages[device.name] & (device.bytes > HANDED_OVER_BYTES))
    kind[launch[(launch != NONE) & waiting]] = HostKind.SYNC
    return replace(host, kind=kind)


def _link(
    host: HostRows, device: DeviceRows, parent: Rows, launch: Rows, names: list[str]
) -> _Links:
    operator = host.kind == HostKind.OP
    around = np.append(nearest(parent, operator), NONE)
    op = around[launch]
    # A launch outside every operator, or not in the file: use the profiler's own reference to the
    # operator.
    noted = matching(np.where(operator, host.external, NONE), device.external)
    op = np.where(op == NONE, noted, op).astype(np.int32)
    is_graph = np.array([_GRAPH_LAUNCH in name for name in names] or [False])
    replayed = np.append(is_graph[host.name], False)[launch]
    return _Links(launch, op, device.graph | replayed)


def _set_list_dtypes(calls: list[OpCall], call: Rows, name: Rows, names: list[str]) -> None:
    """Give the tensors of lists, whose dtype the profiler leaves out, that of the kernel's name."""
    lacking = np.array([*(arguments.lacks_dtype(one) for one in calls), False])
    events = np.flatnonzero(lacking[call])
    numbers, first = np.unique(call[events], return_index=True)
    for number, event in zip(numbers.tolist(), events[first].tolist(), strict=True):
        if dtype := kernel_name(names[name[event]]).dtype:
            calls[number] = arguments.with_list_dtype(calls[number], dtype)


def _compact(
    indices: list[npt.NDArray[np.int32]], table: list[str] | range
) -> tuple[list[npt.NDArray[np.int32]], list[int]]:
    """Renumber columns so that they point into a table of only the entries in use."""
    used = np.zeros(len(table) + 1, np.bool_)
    for index in indices:
        used[index] = True
    used[-1] = False
    number = np.append(np.cumsum(used[:-1]) - 1, NONE).astype(np.int32)
    return [number[index] for index in indices], np.flatnonzero(used).tolist()


def _host_events(
    host: HostRows,
    parent: Rows,
    name: Rows,
    call: Rows,
    origins: Origins,
    threads: list[int],
) -> HostEvents:
    return HostEvents(
        start_ns=host.start,
        duration_ns=host.duration,
        kind=host.kind,
        name=name,
        thread=np.array(threads or [NONE], np.int64)[host.thread],
        parent=parent,
        call=call,
        source=origins.source,
        module=origins.module,
        phase=origins.phase,
        sequence=host.sequence,
        forward=origins.forward,
        external=host.external,
    )


def _doubts(host: HostRows, device: DeviceRows, launch: Rows) -> list[Note]:
    """Notes on what makes the account of this step less certain."""
    doubts: list[Note] = []
    unknown, total = int(np.count_nonzero(launch == NONE)), len(launch)
    if unknown > _MOSTLY_UNMATCHED * total:
        which = "none" if unknown == total else f"only {count(total - unknown)}"
        text = (
            f"the trace has launches for {which} of the device's {count(total)} events: whether "
            "the host delays it is unknown"
        )
        doubts.append(Note(code="launches-not-recorded", text=text))
    elif unknown:
        text = f"device events without a launch: {count(unknown)} of {count(total)}"
        doubts.append(Note(code="unmatched-launches", text=text))
    known = launch != NONE
    early = device.start[known] < host.start[launch[known]]
    if early.any():
        text = (
            f"the clocks of host and device disagree: {count(int(np.count_nonzero(early)))} device "
            "events start before their launch"
        )
        doubts.append(Note(code="clock-mismatch", text=text))
    return doubts


def _captured(host: HostRows, names: list[str]) -> list[Note]:
    """A note on a step that records kernels into a graph instead of running them."""
    begins = np.sort(host.start[named(host, names, lambda name: BEGIN_CAPTURE in name)])
    ends = np.sort(host.start[named(host, names, lambda name: END_CAPTURE in name)])
    launches = host.start[host.kind == HostKind.LAUNCH]
    open_captures = np.searchsorted(begins, launches) - np.searchsorted(ends, launches)
    captured = int(np.count_nonzero(open_captures > 0))
    if not captured or captured < _MOSTLY_CAPTURED * len(launches):
        return []
    text = (
        f"{count(captured)} of {count(len(launches))} launches were recorded into a graph and did "
        "not run: this is the capture of a graph. Diagnose a trace of its replays, with this one "
        "as --capture"
    )
    return [Note(code="graph-captured", text=text)]
