"""Which event lies inside which: parents on a thread, and the nearest ancestor of a kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.events import NONE
from boundby.capture.kineto.rows import HostRows
from boundby.model import HostKind
from boundby.model.timeline import Ints

Rows = npt.NDArray[np.int32]

# Among events with the same start and length, the outer one: old files count whole microseconds.
_OUTERMOST_FIRST = (
    HostKind.ANNOTATION,
    HostKind.DATA,
    HostKind.OBSERVER,
    HostKind.PYTHON,
    HostKind.OP,
    HostKind.SYNC,
    HostKind.LAUNCH,
    HostKind.RUNTIME,
)
_RANK = np.argsort(np.array(_OUTERMOST_FIRST)).astype(np.int8)


def order(host: HostRows) -> npt.NDArray[np.intp]:
    """Sorted by thread, then start, then longest first."""
    return np.lexsort((_RANK[host.kind], -host.duration, host.start, host.thread))


def parents(host: HostRows) -> Rows:
    """The innermost event around each row on its thread; rows must be in order."""
    return parents_of(host.start, host.end, host.thread)


def parents_of(start: Ints, end: Ints, thread: npt.NDArray[np.integer[Any]]) -> Rows:
    """The same, for columns that are sorted by thread, then start, then longest first."""
    starts, ends = start.tolist(), end.tolist()
    found = [NONE] * len(starts)
    changes = np.flatnonzero(np.diff(thread)) + 1
    for first, last in zip([0, *changes.tolist()], [*changes.tolist(), len(starts)], strict=True):
        _sweep(starts, ends, first, last, found)
    return np.array(found, np.int32)


def _sweep(starts: list[int], ends: list[int], first: int, last: int, found: list[int]) -> None:
    open_rows: list[int] = []
    open_ends: list[int] = []
    for row in range(first, last):
        start = starts[row]
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
            open_rows.pop()
        if open_rows:
            found[row] = open_rows[-1]
        open_rows.append(row)
        # A child does not outlive its parent here: clocks that disagree would leave it open.
        end = ends[row]
        open_ends.append(min(end, open_ends[-1]) if open_ends else end)


def nearest(parent: Rows, wanted: npt.NDArray[np.bool_]) -> Rows:
    """For each row, itself or its nearest ancestor that is wanted; -1 if there is none."""
    count = len(parent)
    jump = np.append(np.where(wanted, np.arange(count), parent), count).astype(np.int32)
    jump[jump == NONE] = count
    while not np.array_equal(further := jump[jump], jump):  # each round doubles the reach
        jump = further
    return np.where(jump[:-1] == count, NONE, jump[:-1]).astype(np.int32)


def active_at(host: HostRows, parent: Rows, thread: int, times: Ints) -> Rows:
    """The innermost row of a thread that covers each time; -1 if there is none."""
    first, last = np.searchsorted(host.thread, [thread, thread + 1])
    found = np.searchsorted(host.start[first:last], times, side="right") - 1 + first
    found[found < first] = NONE
    ends = np.append(host.end, np.iinfo(np.int64).max)
    above = np.append(parent, NONE)
    while (over := (found != NONE) & (ends[found] <= times)).any():
        found[over] = above[found[over]]
    rows: Rows = found.astype(np.int32)
    return rows


def matching(keys: Ints, wanted: Ints) -> Rows:
    """The row of `keys` that equals each wanted value; the last of equals; -1 if none does."""
    usable = np.flatnonzero(keys > 0)
    if not len(usable):
        return np.full(len(wanted), NONE, np.int32)
    by_key = usable[np.argsort(keys[usable], kind="stable")]
    sorted_keys = keys[by_key]
    place = np.searchsorted(sorted_keys, wanted, side="right") - 1
    hit = (place >= 0) & (wanted > 0) & (sorted_keys[place] == wanted)
    return np.where(hit, by_key[place], NONE).astype(np.int32)
