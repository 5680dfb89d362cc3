"""Why the device was idle, seen from the thread that issues its next work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.model import PYTHON_FRAMES, HostKind, Ints, Timeline
from boundby.model.assumptions.device import LONGEST_LATENCY_NS
from boundby.model.intervals import Coverage
from boundby.model.rows import IdleRow
from boundby.step.host_intervals import main_thread

LABELS = ("python", "launch", "sync", "data", "unseen")
# An additional cause on a CPU. It belongs to no line, because everything that runs waits.
CPU_WAIT = "core"
_MOST_ROWS = 20  # display limit

Floats = npt.NDArray[np.float64]

_PROGRAM = (*PYTHON_FRAMES, HostKind.OP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The times in which the device was idle, in order, with their causes.

    `parts` is each gap's time by cause; `launches` the host row that launched the work that ends
    it, `syncs` that of the sync that delayed it, -1 for none; `synced_ns` is where the effect of
    that sync begins, past the gap's end without one. `threads` issue that work.
    """

    start_ns: Ints
    end_ns: Ints
    launches: Ints
    syncs: Ints
    synced_ns: Ints
    threads: Ints
    parts: dict[str, Floats]


def gap_causes(timeline: Timeline, begins: Ints, ends: Ints) -> Gaps:
    """Each gap between the busy intervals of a step, also before the first and after the last, by
    cause.

    `data`: inside a loader's next. `sync`: from a sync until the start of the kernel that it
    delayed, for at most the sync's duration, by which the host could have run ahead. `unseen`: work
    that was queued long before has not started, or nothing of the host is known. `launch`: in the
    runtime's launch calls, and until work that was just queued starts.
    `python`: the rest: interpreter, framework, dispatch.
    """
    gaps_from = np.concatenate([[timeline.start_ns], ends])
    gaps_to = np.concatenate([begins, [max(timeline.end_ns, int(ends[-1]) if len(ends) else 0)]])
    keep = gaps_to > gaps_from
    gaps_from, gaps_to = gaps_from[keep], gaps_to[keep]
    launches = _next_launches(timeline, gaps_to)
    parts = {label: np.zeros(len(gaps_from)) for label in LABELS}
    threads = _issuing_threads(timeline, launches)
    syncs, synced = np.full(len(gaps_from), -1, np.int64), np.zeros(len(gaps_from), np.int64)
    for thread in np.unique(threads):
        of_thread = threads == thread
        between = gaps_from[of_thread], gaps_to[of_thread]
        syncs[of_thread], synced[of_thread] = _last_sync(
            timeline, timeline.host.thread == thread, *between
        )
        sync_duration_ns = np.append(timeline.host.duration_ns, 0)[syncs[of_thread]].astype(
            np.float64
        )
        split = _split(
            timeline,
            int(thread),
            *between,
            launches[of_thread],
            synced[of_thread],
            sync_duration_ns,
        )
        for label, amount in split.items():
            parts[label][of_thread] = amount
    return Gaps(
        start_ns=gaps_from,
        end_ns=gaps_to,
        launches=launches,
        syncs=syncs,
        synced_ns=synced,
        threads=threads,
        parts=parts,
    )


def idle_rows(timeline: Timeline, begins: Ints, ends: Ints) -> list[IdleRow]:
    """The syncs and the loaders that caused idle time, the longest first.

    A gap is attributed to the sync or the loader that ended last in it; to a sync for its duration
    at most.
    """
    host = timeline.host
    named = np.flatnonzero((host.kind == HostKind.SYNC) | (host.kind == HostKind.DATA))
    stops = (host.start_ns + host.duration_ns)[named]
    by_stop = np.argsort(stops, kind="stable")
    named, stops = named[by_stop], stops[by_stop]
    total: dict[tuple[str, str, int], float] = {}
    for gap_from, gap_to in zip(
        np.concatenate([[timeline.start_ns], ends]),
        np.concatenate([begins, [max(timeline.end_ns, int(ends[-1]) if len(ends) else 0)]]),
        strict=True,
    ):
        at = int(np.searchsorted(stops, gap_to, side="left")) - 1
        if at < 0 or gap_to <= gap_from or stops[at] < gap_from:
            continue
        row = int(named[at])
        cause = "data" if host.kind[row] == HostKind.DATA else "sync"
        key = (cause, timeline.names[host.name[row]], int(host.source[row]))
        lasts = float(gap_to - gap_from)
        if cause == "sync":
            lasts = min(lasts, float(host.duration_ns[row]))
        total[key] = total.get(key, 0.0) + lasts
    rows = [
        IdleRow(
            cause=cause,
            name=name,
            where=timeline.sources[source] if 0 <= source < len(timeline.sources) else None,
            ns=ns,
        )
        for (cause, name, source), ns in total.items()
    ]
    return sorted(rows, key=lambda row: -row.ns)[:_MOST_ROWS]


def _next_launches(timeline: Timeline, gaps_to: Ints) -> Ints:
    """The host row that launched the device event that ends each gap; -1 for none."""
    device = timeline.device
    if not len(device):
        return np.full(len(gaps_to), -1, np.int64)
    order = np.argsort(device.start_ns, kind="stable")
    at = np.searchsorted(device.start_ns[order], gaps_to)
    launch = device.launch.astype(np.int64)[order]
    gap_launches = np.full(len(gaps_to), -1, np.int64)
    inside = at < len(device)
    gap_launches[inside] = launch[at[inside]]
    return gap_launches


def _issuing_threads(timeline: Timeline, launches: Ints) -> Ints:
    """The thread of each launch; if unknown, the thread that launches most."""
    host = timeline.host
    launching = host.thread[(host.kind == HostKind.LAUNCH)]
    candidates = launching if len(launching) else host.thread
    values, counts = np.unique(candidates, return_counts=True)
    usual = int(values[np.argmax(counts)]) if len(values) else 0
    has_launch = launches >= 0
    threads = np.full(len(launches), usual, np.int64)
    threads[has_launch] = host.thread[launches[has_launch]]
    # A thread without Python and operators works for the thread that has them.
    program_threads = np.unique(host.thread[np.isin(host.kind, _PROGRAM)])
    if len(program_threads):
        threads[~np.isin(threads, program_threads)] = main_thread(timeline)
    return threads


def _split(
    timeline: Timeline,
    thread: int,
    gaps_from: Ints,
    gaps_to: Ints,
    launches: Ints,
    synced_from: Ints,
    sync_duration_ns: Floats,
) -> dict[str, Floats]:
    """Each gap's time by cause, for gaps that end with work from one thread.

    `sync_duration_ns`: of the sync before that work.
    """
    host = timeline.host
    rows = host.thread == thread
    of_data, of_launches = (rows & (host.kind == kind) for kind in (HostKind.DATA, HostKind.LAUNCH))
    data = Coverage(host.start_ns[of_data], host.duration_ns[of_data])
    launch = Coverage(host.start_ns[of_launches], host.duration_ns[of_launches])
    # Work that was queued before the gap began waits for the device alone, not for the host.
    has_launch = launches >= 0
    issued = np.full(len(gaps_from), np.iinfo(np.int64).max)
    issued[has_launch] = (host.start_ns + host.duration_ns)[launches[has_launch]]
    queued = issued <= gaps_from
    waiting = ~queued
    # After the launch call has returned, the rest of the gap is launch latency.
    host_to = np.where(has_launch, np.clip(issued, gaps_from, gaps_to), gaps_to)
    in_data = data.between(gaps_from, host_to)
    after_sync = np.clip(gaps_to - np.maximum(synced_from, gaps_from), 0, None).astype(np.float64)
    after_sync -= data.between(np.maximum(synced_from, gaps_from), gaps_to)
    after_sync = np.maximum(after_sync, 0)
    before = np.where(synced_from < gaps_to, np.maximum(synced_from, gaps_from), host_to)
    before = np.minimum(before, host_to)
    # The time after a sync is caused by it up to its duration, and until the next work starts,
    # which would have been queued; the rest is what the host did.
    synced = synced_from < gaps_to
    issuing = launch.between(before, host_to) + (gaps_to - host_to)
    after_sync = np.minimum(after_sync, sync_duration_ns + issuing)
    in_launch = launch.between(gaps_from, before) + np.where(synced, 0.0, issuing)
    whole = (gaps_to - gaps_from).astype(np.float64)
    held_back = queued & (whole > LONGEST_LATENCY_NS.value)
    if not host.duration_ns[rows].any():  # nothing of the host was recorded
        waiting, held_back = np.zeros_like(waiting), held_back | waiting
    rest = np.clip(whole - in_data - after_sync - in_launch, 0, None)
    return {
        "data": np.where(waiting, in_data, 0.0),
        "sync": np.where(waiting, after_sync, 0.0),
        "launch": np.where(waiting, in_launch, 0.0) + np.where(queued & ~held_back, whole, 0.0),
        "python": np.where(waiting, rest, 0.0),
        "unseen": np.where(held_back, whole, 0.0),
    }


def _last_sync(
    timeline: Timeline, rows: npt.NDArray[np.bool_], gaps_from: Ints, gaps_to: Ints
) -> tuple[Ints, Ints]:
    """The last sync that ended in a gap, and when it began; -1, past the gap's end, for none."""
    host = timeline.host
    is_sync = np.flatnonzero(rows & (host.kind == HostKind.SYNC))
    none = np.full(len(gaps_to), np.iinfo(np.int64).max)
    if not len(is_sync):
        return np.full(len(gaps_to), -1, np.int64), none
    is_sync = is_sync[np.argsort((host.start_ns + host.duration_ns)[is_sync], kind="stable")]
    returns = (host.start_ns + host.duration_ns)[is_sync]
    starts = np.sort(host.start_ns[is_sync])
    at = np.searchsorted(returns, gaps_to, side="left") - 1
    returned = np.where(at >= 0, returns[np.maximum(at, 0)], np.iinfo(np.int64).min)
    # The host was in the sync when the device ran out of work: idle time from then on is its
    # effect.
    began = np.where(at >= 0, starts[np.maximum(at, 0)], np.iinfo(np.int64).max)
    ended_inside = (returned >= gaps_from) & (began <= gaps_to)
    since = np.where(ended_inside, np.maximum(np.minimum(began, returned), gaps_from), none)
    return np.where(ended_inside, is_sync[np.maximum(at, 0)], -1), since
