"""The planes, lines and events of an XSpace message, as columns."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from boundby.capture.xplane.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    DamagedError,
    Field,
    fields,
    signed,
    text,
    varint,
)

Ints = npt.NDArray[np.int64]
StatValue = int | float | str | tuple[int, int]  # bytes are given by their place
Stats = dict[str, StatValue]

# XSpace: planes. XPlane, XLine, XEvent, XStat and their metadata: the fields that are read.
_PLANES = 1
# Definition.
_PLANE_NAME, _PLANE_LINES, _EVENT_METADATA, _STAT_METADATA, _PLANE_STATS = 2, 3, 4, 5, 6
_LINE_ID, _LINE_NAME, _LINE_TIME, _LINE_EVENTS, _LINE_DISPLAY = 1, 2, 3, 4, 11  # definition
_EVENT_ID, _EVENT_OFFSET, _EVENT_DURATION, _EVENT_STATS = 1, 2, 3, 4  # definition
_KEY, _VALUE = 1, 2  # definition: of a map's entry
_NAME, _DISPLAY, _METADATA_STATS = 2, 4, 5  # definition: of XEventMetadata
# The fields of XStat that contain its value.
_DOUBLE, _UINT, _INT, _STR, _RAW, _REF = 2, 3, 4, 5, 6, 7

# Times beyond this (146 years in ns) are damage: they would not fit their columns.
_LATEST_NS = 1 << 62


@dataclass(slots=True, frozen=True)
class EventName:
    """A metadata entry: name and values that all of its events share."""

    name: str
    display: str
    stats: tuple[int, ...]  # as `Line.stats`


@dataclass(slots=True, frozen=True)
class Line:
    """One row of a plane: its events in columns. `name` indexes the plane's `names`."""

    id: int
    name: str
    event: Ints  # key in the plane's `names`
    start_ns: Ints
    duration_ns: Ints
    stats: list[tuple[int, ...]]  # of each event: indices for `Plane.stat`

    def __len__(self) -> int:
        return len(self.event)


@dataclass(slots=True)
class Plane:
    """A device, a host, or a table that others refer to."""

    name: str = ""
    lines: list[Line] = field(default_factory=list)
    names: dict[int, EventName] = field(default_factory=dict)
    stats: Stats = field(default_factory=dict)
    _stat_names: dict[int, str] = field(default_factory=dict)
    _known: list[tuple[str, StatValue]] = field(default_factory=list)

    def stats_of(self, numbers: tuple[int, ...]) -> Stats:
        """The stats of an event or of a metadata entry, by name."""
        return dict(map(self._known.__getitem__, numbers))

    def event_stats(self, line: Line, index: int) -> Stats:
        """The stats of an event; if it has none, those of its metadata."""
        entry = self.names.get(int(line.event[index]))
        shared = self.stats_of(entry.stats) if entry else {}
        return shared | self.stats_of(line.stats[index])

    def event_name(self, key: int) -> str:
        entry = self.names.get(key)
        return entry.name if entry else f"event {key}"


def read_planes(data: bytes) -> list[Plane]:
    """All planes of a file."""
    return [
        _plane(data, one) for one in fields(data, 0, len(data)) if one.number == _PLANES and one.end
    ]


def _plane(data: bytes, message: Field) -> Plane:
    plane = Plane()
    parts = fields(data, message.value, message.end)
    for part in parts:
        if part.number == _PLANE_NAME:
            plane.name = text(data, part)
        elif part.number == _STAT_METADATA:
            key, value = _entry(data, part)
            plane._stat_names[key] = _name_of(data, value)
    reader = _StatReader(data, plane)
    for part in parts:
        if part.number == _EVENT_METADATA:
            key, value = _entry(data, part)
            plane.names[key] = _event_name(data, value, reader)
        elif part.number == _PLANE_STATS and part.end:
            name, found = plane._known[reader.number(part.value, part.end)]
            plane.stats[name] = found
    for part in parts:
        if part.number == _PLANE_LINES and part.end:
            plane.lines.append(_line(data, part, reader))
    return plane


def _entry(data: bytes, message: Field) -> tuple[int, Field]:
    """Key and value of an entry of a map."""
    key, value = 0, Field(_VALUE, message.value, message.value)
    for part in fields(data, message.value, message.end):
        if part.number == _KEY and not part.end:
            key = signed(part.value)
        elif part.number == _VALUE and part.end:
            value = part
    return key, value


def _name_of(data: bytes, message: Field) -> str:
    parts = fields(data, message.value, message.end)
    return next((text(data, part) for part in parts if part.number == _NAME), "")


def _event_name(data: bytes, message: Field, reader: _StatReader) -> EventName:
    name = display = ""
    stats: list[int] = []
    for part in fields(data, message.value, message.end):
        if part.number == _NAME:
            name = text(data, part)
        elif part.number == _DISPLAY:
            display = text(data, part)
        elif part.number == _METADATA_STATS and part.end:
            stats.append(reader.number(part.value, part.end))
    return EventName(name, display, tuple(stats))


class _StatReader:
    """Stats by number: many events have the same ones, and equal bytes are read once."""

    def __init__(self, data: bytes, plane: Plane) -> None:
        self._data = data
        self._plane = plane
        self._numbers: dict[bytes, int] = {}

    def number(self, start: int, end: int) -> int:
        raw = self._data[start:end]
        found = self._numbers.get(raw)
        if found is None:
            found = self._numbers[raw] = len(self._plane._known)
            self._plane._known.append(self._read(start, end))
        return found

    def _read(self, start: int, end: int) -> tuple[str, StatValue]:
        names = self._plane._stat_names
        name, value = "", 0  # type: tuple[str, StatValue]
        for part in fields(self._data, start, end):
            match part.number:
                case 1:
                    name = names.get(part.value, f"stat {part.value}")
                case 2 if part.end - part.value == 8:
                    value = struct.unpack_from("<d", self._data, part.value)[0]
                case 3 if not part.end:
                    value = part.value
                case 4 if not part.end:
                    value = signed(part.value)
                case 5:
                    value = text(self._data, part)
                case 6 if part.end:
                    value = (part.value, part.end)
                case 7 if not part.end:
                    value = names.get(part.value, "")
        return name, value


def _line(data: bytes, message: Field, reader: _StatReader) -> Line:
    number, name, display, time_ns = 0, "", "", 0
    spans: list[Field] = []
    for part in fields(data, message.value, message.end):
        if part.number == _LINE_EVENTS and part.end:
            spans.append(part)
        elif part.number == _LINE_ID:
            number = signed(part.value)
        elif part.number == _LINE_NAME:
            name = text(data, part)
        elif part.number == _LINE_DISPLAY:
            display = text(data, part)
        elif part.number == _LINE_TIME:
            time_ns = signed(part.value)
    events, starts, durations, stats = _events(data, spans, reader)
    latest = max(starts, default=0) // 1000 + abs(time_ns) + max(durations, default=0) // 1000
    if latest > _LATEST_NS or min(starts, default=0) < -_LATEST_NS:
        raise DamagedError(message.value, f"the times of the line {name!r} are out of range")
    # Times are in ps from the line's beginning: ends are rounded, not durations.
    offset = np.array(starts, np.int64)
    duration = np.array(durations, np.int64)
    start_ns = time_ns + offset // 1000
    end_ns = time_ns + (offset + duration) // 1000
    return Line(
        id=number,
        name=display or name,
        event=np.array(events, np.int64),
        start_ns=start_ns,
        duration_ns=end_ns - start_ns,
        stats=stats,
    )


def _events(
    data: bytes, spans: list[Field], reader: _StatReader
) -> tuple[list[int], list[int], list[int], list[tuple[int, ...]]]:
    """The columns of all events of a line, in one loop: a file has millions of these fields."""
    events: list[int] = []
    starts: list[int] = []
    durations: list[int] = []
    all_stats: list[tuple[int, ...]] = []
    stat_number = reader.number
    for _, at, end in spans:
        event = start = duration = 0
        stats: list[int] = []
        while at < end:
            begin = at
            key = data[at]
            at += 1
            if key >= 0x80:
                key, at = varint(data, begin, end)
            kind = key & 7
            if kind in (VARINT, BYTES):
                value = shift = 0
                while True:
                    if at >= end or shift > 63:
                        raise DamagedError(begin, "a number in an event does not end")
                    byte = data[at]
                    at += 1
                    value |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                if kind == BYTES:
                    if at + value > end:
                        raise DamagedError(begin, "a field goes past the end of its event")
                    if key >> 3 == _EVENT_STATS:
                        stats.append(stat_number(at, at + value))
                    at += value
                elif key == _EVENT_ID << 3:
                    event = value
                elif key == _EVENT_OFFSET << 3:
                    start = value
                elif key == _EVENT_DURATION << 3:
                    duration = value
            elif kind in (FIXED64, FIXED32):
                at += 8 if kind == FIXED64 else 4
            else:
                raise DamagedError(begin, f"no field of an event begins here (wire type {kind})")
        if event >= 1 << 63 or start >= 1 << 63 or duration >= 1 << 62:
            raise DamagedError(begin, "a number of an event is out of range")
        events.append(event)
        starts.append(start)
        durations.append(duration)
        all_stats.append(tuple(stats))
    return events, starts, durations, all_stats
