"""A trace file as steps; the timeline of any of them on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from boundby.capture.kineto.assembly import assemble
from boundby.capture.kineto.columns import ColumnBuilder
from boundby.capture.kineto.decode import EventStream
from boundby.capture.kineto.events import Event
from boundby.capture.kineto.metadata import Metadata, read_metadata
from boundby.capture.kineto.rows import Columns, Window
from boundby.capture.kineto.steps import (
    BEFORE_TRACE,
    Step,
    StepsFrom,
    charge,
    find_launches,
    find_steps,
    given_steps,
)
from boundby.capture.kineto.stream import ByteStream, Progress, expected_bytes, part_of, silent
from boundby.capture.kineto.survey import Survey, survey
from boundby.model import HostKind, Note, Timeline
from boundby.model.errors import BoundbyError
from boundby.model.units import count

# Columns take about 70 bytes an event: up to here a file is held whole, and read once.
WHOLE_ROWS = 3_000_000
# Steps with a smaller share of the usual work are not like the others.
_LIKE_OTHERS = 0.5
_WHOLE_BYTES = 900_000_000  # some 300 bytes an event
_SURVEY_SHARE = 0.15  # of the time two passes take
_LAG_NS = 1_000_000_000  # how far beyond its step's end device work is still looked for


class Trace:
    """The steps of one trace file, how they were found, and what is known about its machine.

    `steps` are in order of time, `median` is the index of the one whose time is the median.
    """

    def __init__(
        self,
        path: Path,
        *,
        metadata: Metadata,
        steps: list[Step],
        steps_from: StepsFrom,
        events: int,
        notes: list[Note],
        columns: Columns,
        held: Window | None,
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.steps = steps
        self.steps_from = steps_from
        self.events = events
        self.notes = notes
        self._columns = columns
        self._held = held

    @property
    def median(self) -> int:
        """The index of the step with the median time, among those that have work."""
        return self.median_of(self.series)

    @property
    def series(self) -> str:
        """The kind of step that takes most of the trace."""
        total: dict[str, int] = {}
        for step in self.steps:
            total[step.series] = total.get(step.series, 0) + step.wall_ns
        return max(total, key=lambda series: total[series])

    def median_of(self, series: str) -> int:
        """The index of the median step of a kind."""
        work = self._work()
        mine = [index for index, step in enumerate(self.steps) if step.series == series]
        return mine[_median([self.steps[i] for i in mine], [work[i] for i in mine if work])]

    def _work(self) -> list[int]:
        """The work of each step: device events, in a CPU trace operators."""
        columns = self._columns
        if self._held is not None:
            return []
        called = find_launches(columns).called
        if not len(called):
            called = columns.host.start[columns.host.kind == HostKind.OP]
        called = np.sort(called)
        edges = [(step.host_start_ns, step.host_end_ns) for step in self.steps]
        return np.diff(np.searchsorted(called, np.array(edges, np.int64)), axis=1).ravel().tolist()

    def timeline(self, index: int | None = None) -> Timeline:
        """One step, by default the median one; a file held in part is read again for another."""
        index = self.median if index is None else index
        if not -len(self.steps) <= index < len(self.steps):
            raise BoundbyError(
                f"{self.path}: no step {index}: the trace has {len(self.steps)} (0 is the first)"
            )
        step = self.steps[index]
        if self._held is not None and self.steps_from == "markers":
            around = _around(self.steps, index % len(self.steps))
            if around != self._held:
                self._columns = _load(self.path, around)[0]
                self._held = around
            window = Window(step.host_start_ns, step.host_end_ns)
            launches = find_launches(self._columns)
            step = charge(self._columns, launches, [(step.label, window)])[0]
        timeline = assemble(self._columns, step, self.metadata)
        return msgspec.structs.replace(timeline, notes=[*timeline.notes, *self.notes])


def read(
    path: str | Path,
    *,
    windows: Sequence[tuple[int, int]] | None = None,
    whole_rows: int = WHOLE_ROWS,
    progress: Progress = silent,
) -> Trace:
    """Read a torch profiler trace, `.json` or `.json.gz`.

    `windows` cuts the steps at given times (start and end, in ns of the trace's clock) instead of
    the file's own markers. `progress` is called with the share of the work done, 0 to 1.
    """
    path = Path(path)
    _check_readable(path)
    if expected_bytes(path) <= _WHOLE_BYTES:
        columns, stream, complete = _load(path, None, whole_rows, progress)
        if complete:
            return _trace(path, columns, stream, windows=windows)
    return _read_in_part(path, windows, whole_rows, progress)


class _Read(Protocol):
    """The contents of a file once its events are read."""

    metadata: dict[str, Any]
    truncated: bool
    bad: int


@dataclass
class _Whole:
    metadata: dict[str, Any]
    truncated: bool = False
    bad: int = 0


def trace_of_events(path: Path, blocks: Iterable[list[Event]], metadata: dict[str, Any]) -> Trace:
    """The trace of another format's events; `metadata` as the torch profiler writes it."""
    builder = ColumnBuilder()
    for events in blocks:
        builder.add(events)
    return _trace(path, builder.build(), _Whole(metadata), windows=None)


def _read_in_part(
    path: Path,
    windows: Sequence[tuple[int, int]] | None,
    whole_rows: int,
    progress: Progress,
) -> Trace:
    """Two passes: where the steps are, then the events of one of them."""
    seen = survey(ByteStream(path, part_of(progress, 0, _SURVEY_SHARE)))
    held, notes, steps = _choose(seen, windows, whole_rows)
    columns, stream, _ = _load(path, held, progress=part_of(progress, _SURVEY_SHARE, 1))
    return _trace(path, columns, stream, windows=windows, held=held, steps=steps, notes=notes)


def _choose(
    seen: Survey, windows: Sequence[tuple[int, int]] | None, whole_rows: int
) -> tuple[Window | None, list[Note], list[Step] | None]:
    if windows:
        return Window(min(w[0] for w in windows), max(w[1] for w in windows) + _LAG_NS), [], None
    if seen.markers:
        steps = [
            Step(label=label, host_start_ns=a, host_end_ns=b, start_ns=a, end_ns=b)
            for label, (a, b) in seen.markers
        ]
        return _around(steps, _median(steps)), [], steps
    if seen.events() <= whole_rows:
        return None, [], None
    text = (
        f"no step markers among about {count(seen.events())} events:"
        f" only the first {count(whole_rows)} are analysed"
    )
    return seen.first(whole_rows), [Note(code="partial-read", text=text)], None


def _around(steps: list[Step], index: int) -> Window:
    """A step and its neighbours, whose device work determines where its own time begins and
    ends."""
    first, last = max(index - 1, 0), min(index + 1, len(steps) - 1)
    return Window(steps[first].host_start_ns, steps[last].host_end_ns + _LAG_NS)


def _load(
    path: Path,
    window: Window | None,
    limit: int | None = None,
    progress: Progress = silent,
) -> tuple[Columns, EventStream, bool]:
    """The columns of a file, or of a window of it, and whether it had no more rows than allowed."""
    stream = EventStream(ByteStream(path, progress))
    builder = ColumnBuilder(window)
    for events in stream:
        builder.add(events)
        if limit is not None and builder.rows > limit:
            return builder.build(), stream, False
    return builder.build(), stream, True


def _trace(
    path: Path,
    columns: Columns,
    stream: _Read,
    *,
    windows: Sequence[tuple[int, int]] | None = None,
    held: Window | None = None,
    steps: list[Step] | None = None,
    notes: Sequence[Note] = (),
) -> Trace:
    if not len(columns.host.start) and not len(columns.device.start):
        what = f"none among its {count(columns.events)} events" if columns.events else "no events"
        raise BoundbyError(f"{path}: no operators, runtime calls or kernels in it: {what}")
    how: StepsFrom = "markers"
    if windows:
        steps, how = given_steps(columns, windows), "given"
    elif steps is None:
        steps, how = find_steps(columns)
    return Trace(
        path,
        metadata=read_metadata(stream.metadata),
        steps=steps,
        steps_from=how,
        events=columns.events,
        notes=[*notes, *_notes(columns, stream, how, len(steps)), *_left_out(columns, held)],
        columns=columns,
        held=held,
    )


def _notes(columns: Columns, stream: _Read, how: StepsFrom, steps: int) -> list[Note]:
    found: list[Note] = []
    if stream.truncated:
        text = "the file is cut short: events were read up to the break"
        found.append(Note(code="truncated-file", text=text))
    if bad := columns.bad + stream.bad:
        text = (
            "one damaged event was skipped"
            if bad == 1
            else f"{count(bad)} damaged events were skipped"
        )
        found.append(Note(code="damaged-events", text=text))
    if how in _INFERRED:
        text = _INFERRED[how].format(steps=steps)
        whole = how == "whole window"
        found.append(Note(code="no-repeated-step" if whole else "steps-inferred", text=text))
    if len(columns.device.start) and not len(columns.host.start):
        text = "no host events: the causes of idle time are unknown"
        found.append(Note(code="no-host-events", text=text))
    if devices := _devices(columns):
        text = f"work of {devices} devices in one file: they are analysed together"
        found.append(Note(code="several-devices", text=text))
    return found


_INFERRED: dict[StepsFrom, str] = {
    "optimizer": "no step markers: {steps} steps were cut at the ends of optimizer steps",
    "passes": "no step markers: {steps} forward passes were cut where tokens are embedded",
    "launch pattern": "no step markers: {steps} steps were recovered from the repeating launches",
    "whole window": "no step markers and no repeating launches: the whole window is one step",
}


def _left_out(columns: Columns, held: Window | None) -> list[Note]:
    """Work from before the trace; in a file held in part it belongs to earlier steps."""
    called = find_launches(columns).called
    early = int(np.count_nonzero(called == BEFORE_TRACE)) if held is None else 0
    if not early:
        return []
    text = f"{count(early)} device events were launched before the trace: they are in no step"
    return [Note(code="launched-before-trace", text=text)]


def _devices(columns: Columns) -> int:
    count = len(np.unique(columns.device.stream >> 32)) if len(columns.device.stream) else 0
    return count if count > 1 else 0


def _median(steps: list[Step], work: Sequence[int] = ()) -> int:
    """The step with the median time, the earlier of two; among those with usual work.

    A marker may be written while nothing runs: the loop's last, before the profiler stops.
    """
    least = _LIKE_OTHERS * float(np.median([one for one in work if one])) if any(work) else 0.0
    full = [i for i in range(len(steps)) if not work or work[i] >= least]
    walls = [step.wall_ns for step in steps]
    return sorted(full, key=walls.__getitem__)[(len(full) - 1) // 2]


def _check_readable(path: Path) -> None:
    if ".xplane.pb" in path.name:
        raise BoundbyError(f"{path}: XLA profiles (.xplane.pb) are not supported yet")
    if path.is_dir():
        raise BoundbyError(f"{path}: a folder, not a trace file")
    if not path.exists():
        raise BoundbyError(f"{path}: no such file")
