"""Timelines of events that are written to a trace."""

from __future__ import annotations

from pathlib import Path

from boundby.capture import kineto
from boundby.model import Timeline
from tests.capture.kineto_events import (
    Event,
    text,
    write,
)


def timeline_of(folder: Path, events: list[Event]) -> Timeline:
    return kineto.read(write(folder, text(events))).timeline()


def row_of(timeline: Timeline, name: str) -> int:
    names = [timeline.names[number] for number in timeline.host.name]
    return names.index(name)


def source_of(timeline: Timeline, name: str) -> str | None:
    number = timeline.host.source[row_of(timeline, name)]
    return timeline.sources[number] if number >= 0 else None
