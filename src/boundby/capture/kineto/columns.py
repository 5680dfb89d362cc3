"""Converts events into numpy columns, in blocks, storing every text and argument list once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.arguments import CallKey
from boundby.capture.kineto.events import (
    ABSENT,
    DEVICE_CATEGORIES,
    HOST_CATEGORIES,
    NONE,
    OPERATOR_CATEGORIES,
    PYTHON_CATEGORY,
    RUNTIME_CATEGORIES,
    Event,
    Number,
    device_kind,
    host_kind,
    is_device_work,
)
from boundby.capture.kineto.fields import (
    absent,
    externals,
    in_graph,
    integer,
    integers,
    nanoseconds,
    size,
    stream,
)
from boundby.capture.kineto.rows import Column, Columns, DeviceRows, HostRows, MarkRows, Window
from boundby.capture.marks import marked_phase
from boundby.model import DeviceKind, HostKind, Phase
from boundby.model.timeline import Ints

Key = TypeVar("Key")

_LATEST_US = 9e15  # in ns still an int64
# Assumed: no trace is longer. Events further than that from the others are damaged.
_LONGEST_US = 1e12
_DEVICE_STRIDE = 1 << 32  # streams of two devices never share a number


class _Numbered(dict[Key, int], Generic[Key]):
    """Gives each new key the next number: a lookup that stays in C once a key is known."""

    def __missing__(self, key: Key) -> int:
        number = len(self)
        self[key] = number
        return number


_HOST_TYPES = (np.int64, np.int64, np.int8, np.int32, np.int32, *(np.int64,) * 4, *(np.int32,) * 2)
_DEVICE_TYPES = (
    *(np.int64, np.int64, np.int8, np.int32),
    *(np.int64,) * 3,
    *(np.bool_, np.int64, np.int64),
)


class _Grids(dict[bytes, int]):
    """A number for each launch shape that is the same in every file; 0 for none."""

    def __missing__(self, shape: bytes) -> int:
        self[shape] = number = zlib.crc32(shape.translate(None, b" \n\r\t"))
        return number


class ColumnBuilder:
    """Collects the rows of one file; `window` keeps only rows that overlap it."""

    def __init__(self, window: Window | None = None) -> None:
        self._window = window
        self._names: _Numbered[str] = _Numbered()
        self._threads: _Numbered[tuple[Number, Number]] = _Numbered()
        self._calls: _Numbered[CallKey] = _Numbered()
        self._stacks: _Numbered[str] = _Numbered()
        self._grids = _Grids()
        self._host: list[Sequence[Column]] = []
        self._device: list[Sequence[Column]] = []
        self.events = 0
        self.rows = 0
        self._bad = 0
        self._usual_us: float | None = None  # the usual time of events in the file

    def add(self, events: list[Event]) -> None:
        self.events += len(events)
        complete = [event for event in events if event.ph == "X"]
        if python := [event for event in complete if event.cat == PYTHON_CATEGORY]:
            self._add_python(python)
        if calls := [event for event in complete if event.cat in RUNTIME_CATEGORIES]:
            self._add_runtime(calls)
        if operators := [event for event in complete if event.cat in OPERATOR_CATEGORIES]:
            self._add_operators(operators)
        if device := [event for event in complete if is_device_work(event)]:
            self._add_device(device)

    def build(self) -> Columns:
        names = list(self._names)
        host = HostRows(*_joined(self._host, _HOST_TYPES))
        device = DeviceRows(*_joined(self._device, _DEVICE_TYPES))
        _refine(host.kind, host.name, names, lambda kind, name: host_kind(HostKind(kind), name))
        _refine(
            device.kind, device.name, names, lambda kind, name: device_kind(DeviceKind(kind), name)
        )
        host, marks = _without_marks(host, names)
        host, threads = self._unified_threads(host)
        host, device = _numbered_alike(host, device)
        return Columns(
            host=host,
            device=device,
            marks=marks,
            names=names,
            threads=threads,
            calls=list(self._calls),
            stacks=list(self._stacks),
            events=self.events,
            bad=self._bad,
        )

    def _unified_threads(self, host: HostRows) -> tuple[HostRows, list[int]]:
        """Threads by number: an old file writes one thread's id as text or as a number."""
        unified: _Numbered[tuple[str, str]] = _Numbered()
        dense = [unified[str(pid), str(tid)] for pid, tid in self._threads]
        numbers = [integer(tid) for _, tid in unified]
        if len(set(numbers)) < len(numbers):
            numbers = list(range(len(numbers)))
        thread = np.array(dense, np.int32)[host.thread] if dense else host.thread
        return replace(host, thread=thread), numbers

    def _times(self, events: list[Event]) -> tuple[list[Event], Ints, Ints]:
        """Start and duration in ns of the events that have both, inside the window."""
        ts = np.array([event.ts for event in events])
        dur = np.array([event.dur for event in events])
        sound = (np.abs(ts) < _LATEST_US) & (dur >= 0) & (dur < _LONGEST_US)
        if self._usual_us is None and sound.any():
            self._usual_us = float(np.median(ts[sound]))
        if self._usual_us is not None:
            sound &= np.abs(ts - self._usual_us) < _LONGEST_US
        self._bad += len(events) - int(np.count_nonzero(sound))
        if self._window is not None:
            sound &= (ts * 1000 <= self._window.end_ns) & (
                (ts + dur) * 1000 >= self._window.start_ns
            )
        if not sound.all():
            kept = np.flatnonzero(sound)
            events = [events[row] for row in kept.tolist()]
            ts, dur = ts[kept], dur[kept]
        self.rows += len(events)
        return events, nanoseconds(ts), nanoseconds(dur)

    def _add_python(self, events: list[Event]) -> None:
        """Python frames have nothing but name and time, and are most rows of many traces."""
        events, start, duration = self._times(events)
        kind, unknown = np.full(len(events), HostKind.PYTHON, np.int8), absent(len(events))
        self._host.append((start, duration, kind, *self._named(events), *(unknown,) * 6))

    def _add_runtime(self, events: list[Event]) -> None:
        events, start, duration = self._times(events)
        kind, unknown = np.full(len(events), HostKind.RUNTIME, np.int8), absent(len(events))
        correlation = integers([event.args.correlation for event in events])
        external = externals([event.args for event in events])
        self._host.append(
            (start, duration, kind, *self._named(events), correlation, external, *(unknown,) * 4)
        )

    def _add_operators(self, events: list[Event]) -> None:
        events, start, duration = self._times(events)
        calls, stacks = self._calls, self._stacks
        arguments = [event.args for event in events]
        keys = [
            NONE
            if (given := event.args).shapes is ABSENT
            else calls[
                event.name,
                bytes(given.shapes),
                bytes(given.types),
                bytes(given.strides),
                bytes(given.values),
            ]
            for event in events
        ]
        self._host.append(
            (
                start,
                duration,
                np.array([HOST_CATEGORIES[event.cat] for event in events], np.int8),
                *self._named(events),
                absent(len(events)),
                externals(arguments),
                integers([given.sequence for given in arguments]),
                integers([given.forward_thread for given in arguments]),
                np.array(keys, np.int32),
                np.array(
                    [stacks[given.stack] if given.stack else NONE for given in arguments], np.int32
                ),
            )
        )

    def _named(self, events: list[Event]) -> tuple[Column, Column]:
        names, threads = self._names, self._threads
        return (
            np.array([names[event.name] for event in events], np.int32),
            np.array([threads[event.pid, event.tid] for event in events], np.int32),
        )

    def _add_device(self, events: list[Event]) -> None:
        events, start, duration = self._times(events)
        names, grids = self._names, self._grids
        arguments = [event.args for event in events]
        device = integers([given.device for given in arguments])
        self._device.append(
            (
                start,
                duration,
                np.array(
                    [DEVICE_CATEGORIES.get(event.cat, DeviceKind.KERNEL) for event in events],
                    np.int8,
                ),
                np.array([names[event.name] for event in events], np.int32),
                np.where(device > 0, device, 0) % 1024 * _DEVICE_STRIDE
                + integers([stream(event) for event in events]) % _DEVICE_STRIDE,
                integers([given.correlation for given in arguments]),
                externals(arguments),
                np.array([in_graph(given) for given in arguments], np.bool_),
                integers([size(event) for event in events]),
                np.array(
                    [grids[bytes(given.grid) + bytes(given.block)] for given in arguments],
                    np.int64,
                ),
            )
        )


def _numbered_alike(host: HostRows, device: DeviceRows) -> tuple[HostRows, DeviceRows]:
    """Files that some tools rewrote have no correlation ids: launches and device work then share
    their external ids."""
    if (device.correlation > 0).any() or not (device.external > 0).any():
        return host, device
    calls = np.isin(host.kind, [HostKind.RUNTIME, HostKind.LAUNCH, HostKind.SYNC])
    numbers = np.where(calls, host.external, host.correlation)
    return replace(host, correlation=numbers), replace(device, correlation=device.external)


def _without_marks(host: HostRows, names: list[str]) -> tuple[HostRows, MarkRows]:
    """The rows without the marks at which phases begin, and those marks."""
    phases = [_phase_named(marked_phase(name)) for name in names]
    phase = np.array([NONE if found is None else found for found in phases] or [NONE], np.int8)
    opens = phase[host.name]
    rows = np.flatnonzero(opens != NONE)
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    marks = MarkRows(host.start[rows], opens[rows])
    return (host.take(np.flatnonzero(opens == NONE)) if len(rows) else host), marks


def _phase_named(name: str | None) -> Phase | None:
    return next((phase for phase in Phase if phase.name.lower() == name), None)


def _joined(blocks: list[Sequence[Column]], types: Sequence[Any]) -> list[Column]:
    """One array per column; the blocks' parts are released as soon as they are joined."""
    if not blocks:
        return [np.empty(0, kind) for kind in types]
    parts = [list(column) for column in zip(*blocks, strict=True)]
    blocks.clear()
    joined = []
    for column, kind in zip(parts, types, strict=True):
        joined.append(np.concatenate(column, dtype=kind, casting="same_kind"))
        column.clear()
    return joined


def _refine(
    kinds: npt.NDArray[np.int8],
    rows_names: npt.NDArray[np.int32],
    names: list[str],
    enrich_timeline: Callable[[int, str], int],
) -> None:
    """Look at each distinct pair of kind and name once, then write the kinds in place."""
    if not len(kinds):
        return
    pair = rows_names.astype(np.int64) * 64 + kinds
    distinct, inverse = np.unique(pair, return_inverse=True)
    refined = [enrich_timeline(number % 64, names[number // 64]) for number in distinct.tolist()]
    kinds[:] = np.array(refined, np.int8)[inverse]
