"""An XLA profile as steps; the timeline of any of them on request."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path

import msgspec

from boundby.capture.kineto.metadata import Device, Metadata
from boundby.capture.kineto.names import clean
from boundby.capture.kineto.steps import Step
from boundby.capture.xplane.assembly import assemble
from boundby.capture.xplane.cpu_calls import with_calls
from boundby.capture.xplane.devices import DevicePlane, device_planes
from boundby.capture.xplane.executions import (
    Execution,
    StepsFrom,
    find_executions,
    find_steps,
    launches_of,
    step_markers,
)
from boundby.capture.xplane.hlo import Module
from boundby.capture.xplane.host import host_rows
from boundby.capture.xplane.instructions import Instructions
from boundby.capture.xplane.planes import Plane, read_planes
from boundby.capture.xplane.programs import Programs, read_programs
from boundby.capture.xplane.rows import HostRows, Names
from boundby.capture.xplane.wire import DamagedError
from boundby.model import Note, Timeline
from boundby.model.errors import BoundbyError

_GZIP = b"\x1f\x8b"
_MOST_BYTES = 4_000_000_000  # memory limit


class XlaTrace:
    """The steps of one profile on one device."""

    def __init__(
        self,
        path: Path,
        *,
        metadata: Metadata,
        steps: list[Step],
        steps_from: StepsFrom,
        events: int,
        notes: list[Note],
        plane: DevicePlane,
        host: HostRows,
        names: Names,
        executions: list[Execution],
        programs: Programs,
        versions: dict[str, str],
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.steps = steps
        self.steps_from = steps_from
        self.events = events
        self.notes = notes
        self.programs = programs
        self.executions = executions
        self.names = names
        self.versions = versions
        self._plane = plane
        self._host = host
        self._instructions = Instructions(programs, names)
        self._user_files: dict[str, str] | None = None

    @property
    def vendor(self) -> str | None:
        """The maker of the device, if the profile has it."""
        found = self._plane.stats.get("device_vendor")
        return clean(found) if isinstance(found, str) else None

    @property
    def median(self) -> int:
        """The step with the median time, the earlier of two; not the first or the last of several.

        The first includes the profiler's start, the last the wait at the end of the loop.
        """
        several = len(self.steps) > 2
        inner = range(1, len(self.steps) - 1) if several else range(len(self.steps))
        by_time = sorted(inner, key=lambda index: self.steps[index].wall_ns)
        return by_time[(len(by_time) - 1) // 2]

    def timeline(self, index: int | None = None) -> Timeline:
        """One step, by default the median one."""
        index = self.median if index is None else index
        if not -len(self.steps) <= index < len(self.steps):
            raise BoundbyError(
                f"{self.path}: no step {index}: the trace has {len(self.steps)} (0 is the first)"
            )
        timeline = assemble(
            self._plane,
            self._host,
            self.names,
            self.executions,
            self._instructions,
            self.steps[index],
            user_files=self._users(),
        )
        notes = [*timeline.notes, *self.notes]
        if self.programs.damaged:
            text = f"a program in the file is damaged: {self.programs.damaged[0]}"
            notes.append(Note(code="damaged-program", text=clean(text)))
        return msgspec.structs.replace(timeline, notes=notes)

    def modules(self, index: int | None = None) -> list[Module]:
        """The programs that ran in a step, the longest first."""
        step = self.steps[self.median if index is None else index]
        busy: Counter[tuple[int, int]] = Counter()
        for one in self.executions:
            if step.host_start_ns <= one.called_ns < step.host_end_ns:
                busy[one.program, one.module] += int(self._plane.rows.duration[one.rows].sum())
        found = (
            self.programs.find(program, self.names.table[module])
            for (program, module), _ in busy.most_common()
        )
        return [module for module in found if module is not None]

    def _users(self) -> dict[str, str]:
        """Files with lines of the user's, as they are shown, by their names without folders."""
        if self._user_files is None:
            found: dict[str, str] = {}
            for module in (
                self.programs.find(one.program, self.names.table[one.module])
                for one in {(one.program, one.module): one for one in self.executions}.values()
            ):
                for frame in range(1, len(module.frames.frames) + 1) if module else ():
                    assert module is not None
                    source = module.frames.lines(frame).source
                    shown = source.rpartition(":")[0]
                    if shown:
                        found[shown.rpartition("/")[2]] = shown
            self._user_files = found
        return self._user_files


def read(path: str | Path, roots: tuple[str, ...] = ()) -> XlaTrace:
    """Read an XLA profile, `.xplane.pb`, also compressed with gzip.

    `roots`: folders that source file names are relative to, if available.
    """
    path = Path(path)
    data = _load(path)
    try:
        planes = read_planes(data)
    except DamagedError as error:
        raise BoundbyError(
            f"{path}: damaged or cut short at byte {error.offset} of {len(data)}"
            f"{' (unpacked)' if _is_packed(path) else ''}: {error.problem}"
        ) from None
    return _trace(path, data, planes, roots)


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def _load(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise BoundbyError(f"{path}: a folder, not a trace file") from None
    except FileNotFoundError:
        raise BoundbyError(f"{path}: no such file") from None
    except OSError as error:
        raise BoundbyError(f"{path}: cannot be read: {error.strerror}") from None
    if not data.startswith(_GZIP):
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise BoundbyError(f"{path}: the gzip data is damaged: {error}") from None
    if not unpacker.eof:
        raise BoundbyError(f"{path}: the gzip data is cut short")
    return unpacked


def _trace(path: Path, data: bytes, planes: list[Plane], roots: tuple[str, ...]) -> XlaTrace:
    names = Names()
    devices = device_planes(planes, names)
    if not devices:
        found = ", ".join(clean(plane.name) for plane in planes[:6]) or "none"
        raise BoundbyError(
            f"{path}: no device events and no instructions of a CPU in it (planes: {found})"
        )
    plane = max(devices, key=lambda one: int(one.rows.duration.sum()))
    wanted = set(plane.rows.correlation.tolist()) - {-1}
    host = host_rows(planes, names, wanted)
    if plane.kind == "cpu":
        unlinked = launches_of(plane.rows, host)
        executions = find_executions(plane.rows, host, unlinked, names, plane.number)
        rows, host = with_calls(plane.rows, host, executions, names)
        plane = plane._replace(rows=rows)
    launch = launches_of(plane.rows, host)
    executions = find_executions(plane.rows, host, launch, names, plane.number)
    markers = step_markers(planes)
    steps, how = find_steps(executions, plane.rows, host, markers)
    if not steps:
        raise BoundbyError(f"{path}: no step in it: its device events have no time")
    return XlaTrace(
        path,
        metadata=_metadata(plane),
        steps=steps,
        steps_from=how,
        events=sum(len(line) for one in planes for line in one.lines),
        notes=_notes(how, len(steps), devices, plane),
        plane=plane,
        host=host,
        names=names,
        executions=executions,
        programs=read_programs(data, planes, roots),
        versions=_versions(planes),
    )


def _versions(planes: list[Plane]) -> dict[str, str]:
    """Versions of the framework and its libraries: "jax" and "jaxlib" of jax_version and
    jaxlib_version."""
    found = {}
    for plane in planes:
        for name, value in plane.stats.items() if plane.name.startswith("/host:metadata") else ():
            if name.endswith("_version") and isinstance(value, str) and value:
                found[name.removesuffix("_version")] = clean(value)
    return found


def _metadata(plane: DevicePlane) -> Metadata:
    memory = plane.stats.get("memory_size")
    cores = plane.stats.get("core_count")
    return Metadata(
        devices=[
            Device(
                index=plane.number,
                name=clean(plane.name) if plane.name else None,
                memory_bytes=memory if isinstance(memory, int) else None,
                processors=cores if isinstance(cores, int) else None,
            )
        ],
        kind=plane.kind,
    )


def _notes(
    how: StepsFrom, steps: int, devices: list[DevicePlane], plane: DevicePlane
) -> list[Note]:
    notes = []
    if how == "repeating program":
        text = f"no step markers: {steps} steps were found by the repetition of the largest program"
        notes.append(Note(code="steps-inferred", text=text))
    elif how == "whole window":
        text = "no step markers and no program that repeats: the whole window is one step"
        notes.append(Note(code="no-repeated-step", text=text))
    if len(devices) > 1:
        text = f"{len(devices)} devices in one file: number {plane.number}, the busiest, is shown"
        notes.append(Note(code="several-devices", text=text))
    return notes
