"""The Python lines that led to an instruction, from a module's table of stack frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from boundby.capture.kineto.names import Origin, origin_of, shortened
from boundby.capture.xplane.wire import Field, fields, text

# Field numbers of the message.
_FILES, _LOCATIONS, _FRAMES = 1, 3, 4
_DEEPEST = 500  # time limit


class _Location(NamedTuple):
    file: int
    line: int


class _Frame(NamedTuple):
    location: int
    parent: int


class Lines(NamedTuple):
    """The user's line, and the line of a library that it led to; empty for none."""

    source: str
    inside: str


@dataclass(slots=True)
class StackFrames:
    """The table; entries are numbered from 1. `roots`: folders that file names are relative to, the
    longest first."""

    files: list[str] = field(default_factory=list)
    locations: list[_Location] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    roots: tuple[str, ...] = ()
    _known: dict[int, Lines] = field(default_factory=dict)

    def lines(self, frame: int) -> Lines:
        """The innermost line that is the user's, and the innermost line of a library under it."""
        found = self._known.get(frame)
        if found is None:
            found = self._known[frame] = self._lines(frame)
        return found

    def _named(self, path: str) -> str:
        root = next((root for root in self.roots if path.startswith(root)), None)
        return shortened(path) if root is None else path[len(root) :]

    def _lines(self, frame: int) -> Lines:
        inside = outermost = ""
        for _ in range(_DEEPEST):
            if not 0 < frame <= len(self.frames):
                break
            location, parent = self.frames[frame - 1]
            if 0 < location <= len(self.locations):
                file, line = self.locations[location - 1]
                path = self.files[file - 1] if 0 < file <= len(self.files) else ""
                origin = origin_of(path) if path else Origin.NOT_A_FRAME
                where = f"{self._named(path)}:{line}"
                if origin is Origin.USER:
                    return Lines(where, inside)
                if origin is Origin.LIBRARY:
                    inside = inside or where
                    outermost = where
            frame = parent
        # Nothing of the user's: the program was called through a library's command.
        return Lines(outermost, inside if inside != outermost else "")


def read_stack_frames(data: bytes, message: Field) -> StackFrames:
    table = StackFrames()
    for part in fields(data, message.value, message.end):
        if part.number == _FILES:
            table.files.append(text(data, part))
        elif part.number in (_LOCATIONS, _FRAMES) and part.end:
            numbers = {p.number: p.value for p in fields(data, part.value, part.end)}
            if part.number == _LOCATIONS:
                table.locations.append(_Location(numbers.get(1, 0), numbers.get(3, 0)))
            else:
                table.frames.append(_Frame(numbers.get(1, 0), numbers.get(2, 0)))
    return table
