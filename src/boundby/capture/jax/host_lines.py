"""Puts the lines of one recorded step into the timeline of another step of the same kind.

Both steps make the same calls. Between two of them each line gets the share of the time that it had
in the recorded step.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.capture.jax.line_recorder import LineRecord
from boundby.capture.jax.places import Place
from boundby.capture.kineto.nesting import nearest, parents_of
from boundby.model import HostEvents, HostKind, Ints, Timeline

# More lines than this are merged by time.
_MOST_PIECES = 5_000
_CALLS = (HostKind.OP, HostKind.SYNC)
_NONE = -1  # definition

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int32]


class _Pieces(NamedTuple):
    """Columns: intervals of time at one line, which is an index."""

    start_ns: Ints
    end_ns: Ints
    line: Ints


def with_lines(
    timeline: Timeline,
    recorded: Timeline,
    record: LineRecord,
    place: Callable[[Place], str],
) -> Timeline:
    """`recorded` is the timeline of the step that was recorded, `place` names a line."""
    thread = _thread(timeline)
    if thread is None or _thread(recorded) is None or not record.marks:
        return timeline
    host = timeline.host
    edges, lines, names = _distinct(record, place)
    scale = recorded.host
    began, ended = _span(recorded)
    times = np.interp(edges, [record.start_ns, record.end_ns], [began, ended])
    times = _snapped(times, scale, _outer(scale, thread))
    source, target = _anchors(recorded, timeline, thread)
    pieces = _pieces(np.interp(times, source, target), lines)
    sources = list(timeline.sources)
    index = {name: at for at, name in enumerate(sources)}
    numbers = [index.setdefault(one.name, len(index)) for one in names]
    outer = [index.setdefault(one.outer, len(index)) for one in names]
    labels = {name: at for at, name in enumerate(timeline.names)}
    functions = [labels.setdefault(one.label, len(labels)) for one in names]
    added = _rows(
        pieces,
        sources=np.array(numbers, np.int32),
        outer=np.array(outer, np.int32),
        names=np.array(functions, np.int32),
        thread=thread,
    )
    merged, position = _merged(host, added)
    device = timeline.device
    moved = np.append(position[: len(host)], _NONE).astype(np.int32)
    return msgspec.structs.replace(
        timeline,
        host=merged,
        device=msgspec.structs.replace(device, launch=moved[device.launch], op=moved[device.op]),
        sources=list(index),
        names=list(labels),
    )


def _thread(timeline: Timeline) -> int | None:
    """The thread that boundby itself waited on: the script's."""
    threads = timeline.host.thread[timeline.host.kind == HostKind.OBSERVER]
    return int(threads[0]) if len(threads) else None


def _span(timeline: Timeline) -> tuple[int, int]:
    """Start and end of the time in which lines were recorded: from the start of the step to
    boundby's own sync at its end."""
    host = timeline.host
    return timeline.start_ns, int(host.start_ns[host.kind == HostKind.OBSERVER].max())


class _Line(NamedTuple):
    """A line as it is shown, with its function, and the line of the loop that led to it."""

    name: str
    label: str
    outer: str


def _distinct(record: LineRecord, place: Callable[[Place], str]) -> tuple[Ints, Ints, list[_Line]]:
    """The start times of lines, and the end of the last; which line each is."""
    index: dict[_Line, int] = {}
    known: dict[tuple[str, str, int, Place | None], int] = {}
    lines = []
    for mark in record.marks:
        at = known.get(mark[1:])
        if at is None:
            name = place((mark.file, mark.line))
            file, _, line = name.rpartition(":")
            outer = name if mark.outer is None else place(mark.outer)
            found = _Line(name, f"{file}({line}): {mark.function}", outer)
            at = known[mark[1:]] = index.setdefault(found, len(index))
        lines.append(at)
    times = [mark.time_ns for mark in record.marks]
    return np.array([*times, record.end_ns], np.int64), np.array(lines, np.int64), list(index)


def _outer(host: HostEvents, thread: int) -> Ints:
    """Calls on the script's thread that are inside no other call."""
    calls = np.isin(host.kind, _CALLS) & (host.thread == thread)
    around = np.append(nearest(host.parent, calls), _NONE)[host.parent]
    return np.flatnonzero(calls & (around == _NONE))


def _snapped(edges: Floats, host: HostEvents, calls: Ints) -> Floats:
    """Start times moved out of calls, because the two clocks agree within microseconds only."""
    if not len(calls):
        return edges
    starts, ends = host.start_ns[calls], (host.start_ns + host.duration_ns)[calls]
    at = np.maximum(np.searchsorted(starts, edges, side="right") - 1, 0)
    inside = (edges > starts[at]) & (edges < ends[at])
    nearer = np.where(edges - starts[at] < ends[at] - edges, starts[at], ends[at])
    return np.where(inside, nearer, edges)


def _anchors(recorded: Timeline, timeline: Timeline, thread: int) -> tuple[Ints, Ints]:
    """Moments that are the same in both steps: begin, end, and those of common calls."""
    before, after = recorded.host, timeline.host
    first, second = _outer(before, thread), _outer(after, thread)
    one = [recorded.names[name] for name in before.name[first]]
    two = [timeline.names[name] for name in after.name[second]]
    if one != two:
        matcher = difflib.SequenceMatcher(None, one, two, autojunk=len(one) > _MOST_PIECES)
        same = [
            (block.a + at, block.b + at)
            for block in matcher.get_matching_blocks()
            for at in range(block.size)
        ]
        first, second = first[[a for a, _ in same]], second[[b for _, b in same]]
    spans = [_span(recorded), _span(timeline)]
    moments = []
    for host, calls, (began, ended) in ((before, first, spans[0]), (after, second, spans[1])):
        inner = np.stack([host.start_ns[calls], (host.start_ns + host.duration_ns)[calls]])
        moments.append(np.concatenate([[began], np.clip(inner.T.ravel(), began, ended), [ended]]))
    return moments[0], moments[1]


def _pieces(times: Floats, lines: Ints) -> _Pieces:
    """Neighbours at the same line are one; very many are merged by time."""
    edges = np.maximum.accumulate(times.astype(np.int64))
    if len(lines) > _MOST_PIECES:
        grid = np.linspace(edges[0], edges[-1], _MOST_PIECES + 1).astype(np.int64)
        cuts = np.unique(np.concatenate([edges, grid]))
        line = lines[
            np.clip(np.searchsorted(edges, cuts[:-1], side="right") - 1, 0, len(lines) - 1)
        ]
        bins = np.clip(np.searchsorted(grid, cuts[:-1], side="right") - 1, 0, _MOST_PIECES - 1)
        spent = np.zeros((_MOST_PIECES, int(lines.max()) + 1))
        np.add.at(spent, (bins, line), np.diff(cuts))
        edges, lines = grid, spent.argmax(axis=1)
    kept = np.flatnonzero(np.diff(lines, prepend=_NONE) != 0)
    starts, ends = edges[kept], np.append(edges[kept[1:]], edges[-1])
    lasting = ends > starts
    return _Pieces(starts[lasting], ends[lasting], lines[kept][lasting])


def _rows(pieces: _Pieces, *, sources: Rows, outer: Rows, names: Rows, thread: int) -> HostEvents:
    count = len(pieces.line)
    nothing = np.full(count, _NONE, np.int32)
    return HostEvents(
        start_ns=pieces.start_ns,
        duration_ns=pieces.end_ns - pieces.start_ns,
        kind=np.full(count, HostKind.PYTHON, np.int8),
        name=names[pieces.line],
        thread=np.full(count, thread, np.int64),
        parent=nothing,
        call=nothing,
        source=sources[pieces.line],
        outer=outer[pieces.line],
        module=nothing,
        phase=np.zeros(count, np.int8),
        sequence=np.full(count, _NONE, np.int64),
        forward=nothing,
        external=np.full(count, _NONE, np.int64),
    )


def _merged(host: HostEvents, added: HostEvents) -> tuple[HostEvents, Ints]:
    """All rows in order, with their parents and lines; and the new position of each row."""
    columns = {
        name: np.concatenate([getattr(host, name), getattr(added, name)])
        for name in HostEvents.__struct_fields__
        if getattr(host, name) is not None
    }
    assert added.outer is not None
    columns["outer"] = np.concatenate([np.full(len(host), _NONE, np.int32), added.outer])
    outer = np.where(columns["kind"] == HostKind.PYTHON, 0, 1)
    order = np.lexsort((outer, -columns["duration_ns"], columns["start_ns"], columns["thread"]))
    columns = {name: column[order] for name, column in columns.items()}
    start = columns["start_ns"]
    columns["parent"] = parents_of(start, start + columns["duration_ns"], columns["thread"])
    named = columns["source"] != _NONE
    line = nearest(columns["parent"], named)
    columns["source"] = np.append(columns["source"], _NONE)[line]
    columns["outer"] = np.append(columns["outer"], _NONE)[line]
    columns["called"] = columns["source"]
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return HostEvents(**columns), position
