"""One step's rows, sorted, linked and named: the Timeline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.names import Origin, clean, origin_of
from boundby.capture.kineto.nesting import nearest, parents_of
from boundby.capture.kineto.steps import Step
from boundby.capture.xplane import programs as of_programs
from boundby.capture.xplane.devices import UNCOVERED, DevicePlane
from boundby.capture.xplane.executions import Execution, launches_of
from boundby.capture.xplane.instructions import Executed, Instructions
from boundby.capture.xplane.rows import NONE, DeviceRows, HostRows, Names
from boundby.model import DeviceEvents, HostEvents, HostKind, Note, OpCall, Phase, Timeline
from boundby.model.units import count

_LEAST_SHARE = 0.01  # share of the device time; less is not reported
_FRAME = re.compile(r"^\$(?P<file>[^:]+):(?P<line>\d+) ")


@dataclass(slots=True)
class _Tables:
    """The tables that numbers in the timeline's columns refer to."""

    sources: Names = field(default_factory=Names)
    modules: Names = field(default_factory=Names)
    calls: list[OpCall] = field(default_factory=list)
    places: dict[tuple[int, int], tuple[int, int, int, int, int]] = field(default_factory=dict)

    def place(
        self, executed: Executed, ran: Set[tuple[int, int]]
    ) -> tuple[int, int, int, int, int]:
        """Call, source, inside, module and phase of an instruction; those in `ran` have rows
        too."""
        key = (id(executed.module), executed.node.id)
        found = self.places.get(key)
        if found is None:
            call = of_programs.call_of(executed.module, executed.node)
            if _runs_others(executed, ran):
                # The rows inside have its cost: this row is the time that no event covers.
                kind = of_programs.kind_of(call.hlo) if call.hlo is not None else ""
                call = msgspec.structs.replace(call, name=f"hlo::control({kind})")
            self.calls.append(call)
            origin = of_programs.origin_of(executed.module, executed.node)
            found = self.places[key] = (
                len(self.calls) - 1,
                self.sources.number(clean(origin.source)) if origin.source else NONE,
                self.sources.number(clean(origin.inside)) if origin.inside else NONE,
                self.modules.number(clean(origin.module)) if origin.module else NONE,
                int(origin.phase),
            )
        return found


def _runs_others(executed: Executed, ran: Set[tuple[int, int]]) -> bool:
    """Whether instructions inside this one, a loop or a conditional, were executed separately."""
    module = executed.module
    inside = (node for one in module.called_by(executed.node) for node in one.nodes)
    return any((id(module), node.id) in ran for node in inside)


def assemble(
    plane: DevicePlane,
    host: HostRows,
    names: Names,
    executions: Sequence[Execution],
    instructions: Instructions,
    step: Step,
    *,
    user_files: Mapping[str, str],
) -> Timeline:
    """The timeline of one step on one device."""
    ours = [one for one in executions if step.host_start_ns <= one.called_ns < step.host_end_ns]
    within = _rows_of(plane.rows, host, executions, step)
    device = plane.rows.take(within)
    position = {row: at for at, row in enumerate(within.tolist())}
    calls = launches_of(plane.rows, host)
    around = np.append(host.parent, NONE)[calls].astype(np.int64)
    apart = np.where(plane.rows.graph, plane.rows.correlation, around)
    tables = _Tables()
    placed = np.full((6, len(device)), NONE, np.int64)  # as `_Tables.place`, then the turn
    placed[4] = Phase.OTHER
    for execution in ours:
        found = instructions.of(execution, plane.rows, apart)
        ran = {(id(executed.module), executed.node.id) for executed in found.values()}
        for row, executed in found.items():
            placed[:5, position[row]] = tables.place(executed, ran)
            placed[5, position[row]] = executed.turn
    rows = _host_rows(host, step)
    launch = launches_of(device, rows)
    call, source, inside, module, phase, turn = placed
    table = [clean(name) for name in names.table]
    return Timeline(
        start_ns=step.start_ns,
        end_ns=step.end_ns,
        host=_host_events(rows, names, tables.sources, user_files),
        device=DeviceEvents(
            start_ns=device.start,
            duration_ns=device.duration,
            kind=device.kind,
            name=device.name,
            stream=device.stream,
            launch=launch,
            op=np.full(len(device), NONE, np.int32),
            graph=device.graph,
            bytes=device.bytes,
            call=call.astype(np.int32),
            share=turn.astype(np.int32),
            source=source.astype(np.int32),
            inside=inside.astype(np.int32),
            module=module.astype(np.int32),
            phase=phase.astype(np.int8),
        ),
        names=table,
        sources=tables.sources.table,
        modules=tables.modules.table,
        calls=tables.calls,
        device_name=plane.name,
        device_kind=plane.kind,
        label=step.label,
        notes=_doubts(device, launch, call, names.number(UNCOVERED)),
    )


def _rows_of(
    device: DeviceRows, host: HostRows, executions: Sequence[Execution], step: Step
) -> npt.NDArray[np.intp]:
    """The device rows that the host launched in its part of the step."""
    launch = launches_of(device, host)
    called = np.where(launch >= 0, np.append(host.start, 0)[launch], device.start)
    for one in executions:
        called[one.rows] = one.called_ns
    return np.flatnonzero((called >= step.host_start_ns) & (called < step.host_end_ns))


def _host_rows(host: HostRows, step: Step) -> HostRows:
    """The host's rows in its part of the step; rows that extend beyond its ends are cut there."""
    rows = host.take((host.start < step.host_end_ns) & (host.end > step.host_start_ns))
    start = np.maximum(rows.start, step.host_start_ns)
    end = np.minimum(rows.end, step.host_end_ns)
    rows = replace(rows, start=start, duration=end - start)
    rows = rows.take(np.lexsort((-rows.duration, rows.start, rows.thread)))
    return replace(rows, parent=parents_of(rows.start, rows.end, rows.thread))


def _host_events(
    rows: HostRows, names: Names, sources: Names, user_files: Mapping[str, str]
) -> HostEvents:
    """The user's Python functions have their own first line; what they call has theirs."""
    lines = np.full(len(names.table) + 1, NONE, np.int32)
    for number in np.unique(rows.name[rows.kind == HostKind.PYTHON]).tolist():
        match = _FRAME.match(names.table[number])
        if match is not None and is_users(match["file"], user_files):
            file = user_files.get(match["file"], match["file"])
            lines[number] = sources.number(clean(f"{file}:{match['line']}"))
    own = np.where(rows.kind == HostKind.PYTHON, lines[rows.name], NONE)
    around = nearest(rows.parent, own != NONE)
    source = np.append(own, NONE)[around].astype(np.int32)
    nothing = np.full(len(rows), NONE, np.int32)
    return HostEvents(
        start_ns=rows.start,
        duration_ns=rows.duration,
        kind=rows.kind,
        name=rows.name,
        thread=rows.thread,
        parent=rows.parent,
        call=nothing,
        source=source,
        module=nothing,
        phase=np.zeros(len(rows), np.int8),
        sequence=np.full(len(rows), NONE, np.int64),
        forward=nothing,
        external=np.full(len(rows), NONE, np.int64),
    )


def is_users(file: str, user_files: Mapping[str, str]) -> bool:
    """Whether a file that the profiler named without its folder is the user's.

    The programs contain the files of their lines with folders.
    """
    if user_files:
        return file in user_files
    return not file.startswith("<") and origin_of(file) is Origin.USER


def _doubts(
    device: DeviceRows,
    launch: npt.NDArray[np.int32],
    call: npt.NDArray[np.int64],
    uncovered: int,
) -> list[Note]:
    doubts = []
    unknown = int(np.count_nonzero(launch == NONE))
    if unknown and unknown < len(device):
        text = f"{count(unknown)} of {count(len(device))} device events have no launch"
        doubts.append(Note(code="unmatched-launches", text=text))
    bare = device.name == uncovered
    share = device.duration[bare].sum() / max(1, device.duration.sum())
    if share > _LEAST_SHARE:
        text = (
            f"no operator events for {share:.0%} of the time in which programs ran: the bound of "
            "that time is unknown"
        )
        doubts.append(Note(code="operators-not-recorded", text=text))
    lost = int(np.count_nonzero((call == NONE) & (device.module != NONE) & ~bare))
    if lost:
        text = (
            f"{count(lost)} of {count(len(device))} device events belong to no instruction of "
            "their program: their roofline minimum is unknown"
        )
        doubts.append(Note(code="unmatched-instructions", text=text))
    return doubts
