"""Where the host waits for the device, and for which work.

Traces say neither which stream a sync waits for nor whether the step waits for the sync's thread.
Both follow from what else happened: a sync that returned while work was running did not wait for
that work, and a thread that continues to issue does not wait in another thread's sync.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.model import HostKind, Ints, Timeline
from boundby.model.assumptions.device import SHORT_WAKE_NS, SYNC_RETURN_NS

Mask = npt.NDArray[np.bool_]

# Instead of a piece of work: everything issued so far, or nothing.
EVERYTHING, NOTHING = -1, -2
_WHOLE_DEVICE = ("DeviceSynchronize", "CtxSynchronize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The syncs that the step waits in, in order of rows.

    `event[i]` is the device event that sync i waits for, or `EVERYTHING`, or `NOTHING`; it waits
    from `start_ns[i]` until `until_ns[i]`.
    """

    rows: Ints
    start_ns: Ints
    event: Ints
    until_ns: Ints


def waits_of(timeline: Timeline) -> Waits:
    host = timeline.host
    rows = np.flatnonzero(host.kind == HostKind.SYNC)
    rows = rows[_stops_the_step(timeline, rows)]
    starts, stops = host.start_ns[rows], (host.start_ns + host.duration_ns)[rows]
    if not len(timeline.device) or not len(rows):
        everything = np.full(len(rows), EVERYTHING)
        return Waits(rows=rows, start_ns=starts, event=everything, until_ns=starts)
    event = _awaited(timeline, rows, starts, stops)
    ends = timeline.device.start_ns + timeline.device.duration_ns
    until = np.where(event >= 0, ends[np.maximum(event, 0)], starts)
    everything = event == EVERYTHING
    until[everything] = _latest(issued_ns(timeline), ends, stops[everything], starts[everything])
    until = np.clip(until, starts, stops)
    return Waits(rows=rows, start_ns=starts, event=event, until_ns=until)


def issued_ns(timeline: Timeline) -> Ints:
    """When each device event's launch call returned; its own start if the call is unknown."""
    host, device = timeline.host, timeline.device
    has_launch = device.launch >= 0
    issued = device.start_ns.copy()
    issued[has_launch] = (host.start_ns + host.duration_ns)[device.launch[has_launch]]
    return issued


def _stops_the_step(timeline: Timeline, syncs: Ints) -> Mask:
    """A mask of the syncs that stop the step: those without a busier thread that continues beside
    them.

    Backward has its own thread, and the thread that started it does nothing meanwhile: a sync of
    either stops the step.
    """
    host = timeline.host
    launches = np.unique(timeline.device.launch[timeline.device.launch >= 0])
    launches = launches[np.argsort(host.start_ns[launches], kind="stable")]
    threads, counts = np.unique(host.thread[launches], return_counts=True)
    stops = np.ones(len(syncs), np.bool_)
    for thread in np.unique(host.thread[syncs]):
        busier = threads[counts > counts[threads == thread].sum()]
        if not len(busier):
            continue
        on_thread = host.thread[syncs] == thread
        begins = host.start_ns[syncs[on_thread]]
        ends = begins + host.duration_ns[syncs[on_thread]]
        other_starts = np.sort(host.start_ns[np.isin(host.thread, busier)])
        continues = np.searchsorted(other_starts, ends) > np.searchsorted(other_starts, begins)
        # What was launched before and after, if the time is too short to see more.
        others = np.concatenate([[True], np.isin(host.thread[launches], busier), [True]])
        at = host.start_ns[launches]
        between = others[np.searchsorted(at, begins)] & others[np.searchsorted(at, ends) + 1]
        stops[on_thread] = ~(continues | (between & (ends - begins < SHORT_WAKE_NS.value)))
    return stops


def _awaited(timeline: Timeline, rows: Ints, starts: Ints, stops: Ints) -> Ints:
    """The event that each sync waits for.

    A blocking copy waits for itself. Others wait for everything, unless work issued before them was
    still running when they returned: then for what ended last in between.
    """
    device = timeline.device
    ends, issued = device.start_ns + device.duration_ns, issued_ns(timeline)
    latest_end = _latest(issued, ends, starts, starts)
    whole = np.array([any(word in name for word in _WHOLE_DEVICE) for name in timeline.names])
    one_stream = (latest_end > stops + SYNC_RETURN_NS.value) & ~whole[timeline.host.name[rows]]
    by_end = np.argsort(ends, kind="stable")
    sorted_ends = ends[by_end]
    event = np.full(len(rows), EVERYTHING, np.int64)
    for sync in np.flatnonzero(one_stream):
        first, last = np.searchsorted(
            sorted_ends, [starts[sync], stops[sync] + SYNC_RETURN_NS.value]
        )
        overlapping = by_end[first:last]
        overlapping = overlapping[issued[overlapping] <= starts[sync]]
        event[sync] = overlapping[-1] if len(overlapping) else NOTHING
    position = np.full(len(timeline.host) + 1, -1, np.int64)
    position[rows] = np.arange(len(rows))
    itself = position[device.launch]
    in_order = np.flatnonzero(itself >= 0)[np.argsort(ends[itself >= 0], kind="stable")]
    event[itself[in_order]] = in_order  # of several the last one stays
    return event


def _latest(issued: Ints, ends: Ints, at: Ints, otherwise: Ints) -> Ints:
    """The latest end of the work issued by then."""
    order = np.argsort(issued, kind="stable")
    latest = np.maximum.accumulate(ends[order])
    index = np.searchsorted(issued[order], at, side="right") - 1
    return np.where(index >= 0, latest[np.maximum(index, 0)], otherwise)
