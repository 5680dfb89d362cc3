"""A fast first pass through a file too large to hold: its step markers, and its events over
time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.events import HOST_CATEGORIES, STEP_MARKER
from boundby.capture.kineto.fields import nanoseconds
from boundby.capture.kineto.names import clean
from boundby.capture.kineto.rows import Window
from boundby.capture.kineto.stream import ByteStream

_MARKER = re.compile(rb'"name"\s*:\s*"' + STEP_MARKER.encode())
_TIMESTAMP = re.compile(rb'"ts"\s*:\s*(\d[\d.]{0,30})')
_OVERLAP = 8192  # a marker that spans two pieces; markers are a few hundred bytes
_SAMPLED = 16  # one part in this many of each piece is searched for timestamps
_tolerant = json.JSONDecoder(strict=False)


@dataclass(slots=True)
class Survey:
    """Marked steps, and a sample of the events' start times."""

    markers: list[tuple[str | None, Window]] = field(default_factory=list)
    sampled_us: list[npt.NDArray[np.float64]] = field(default_factory=list)

    def events(self) -> int:
        """The approximate number of events in the file."""
        return sum(len(part) for part in self.sampled_us) * _SAMPLED

    def first(self, events: int) -> Window:
        """The interval of time that contains about the first `count` events."""
        starts = np.sort(np.concatenate(self.sampled_us))
        last = min(events // _SAMPLED, len(starts) - 1)
        return Window(0, int(starts[last] * 1000))


def survey(source: ByteStream) -> Survey:
    found = Survey()
    windows: dict[tuple[str, int], Window] = {}
    before = b""
    for piece in source:
        text = before + piece
        for match in _MARKER.finditer(text):
            if match.end() > len(text) - _OVERLAP // 2 and len(piece) > _OVERLAP:
                break  # seen complete in the next piece
            _add_marker(text, match.start(), windows)
        stamps = _TIMESTAMP.findall(piece, 0, max(len(piece) // _SAMPLED, 1))
        found.sampled_us.append(np.array([_number(stamp) for stamp in stamps]))
        before = text[-_OVERLAP:]
    for match in _MARKER.finditer(before):
        _add_marker(before, match.start(), windows)
    for (label, _), window in sorted(windows.items(), key=lambda item: item[1]):
        if not found.markers or window.start_ns >= found.markers[-1][1].end_ns - 1000:
            found.markers.append((label, window))
    return found


def _add_marker(text: bytes, at: int, windows: dict[tuple[str, int], Window]) -> None:
    """Decode the event around a marker's name: its brace is the first, or one further out."""
    brace = at
    for _ in range(3):
        brace = text.rfind(b"{", max(0, at - _OVERLAP // 2), brace)
        if brace < 0:
            return
        event = _object_at(text, brace)
        if event.get("cat") in HOST_CATEGORIES and "ts" in event:
            start, length = _number(event.get("ts")), _number(event.get("dur"))
            if length > 0 and abs(start) < 9e15 and length < 9e15:
                label = clean(str(event.get("name")))
                begin, lasts = nanoseconds(np.array([start, length])).tolist()
                window = Window(begin, begin + lasts)
                windows[label, window.start_ns] = window
            return


def _object_at(text: bytes, brace: int) -> dict[str, Any]:
    try:
        found, _ = _tolerant.raw_decode(text[brace : brace + _OVERLAP].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
