"""Source lines of the time in which the device, or a CPU's operators, had no work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model import HostKind, Ints, Timeline
from boundby.step.cpu_ops import DispatchCost
from boundby.step.host_intervals import HostIntervals, called_from, main_thread
from boundby.step.idle_causes import LABELS, Gaps
from boundby.step.nesting import Mask, nearest
from boundby.step.profiler_overhead import ProfilerOverhead

Floats = npt.NDArray[np.float64]

_PYTHON, _LAUNCH, _SYNC, _DATA, _UNSEEN = (
    LABELS.index(name) for name in ("python", "launch", "sync", "data", "unseen")
)
_INSTANT_NS = 1.0  # shorter durations count as zero
# Functions of torch's profiler: clean steps run neither them nor what they call. Of boundby's own
# rows only their own time is left out, because they call the script's modules.
_PROFILER = re.compile(r"^torch/profiler/profiler\.py\(")


@dataclass(frozen=True, slots=True)
class LineTime:
    """Time without operations, by cause, at one line; `inside` as in `HostIntervals`."""

    label: str
    source: int
    inside: int
    ns: float


class LineTimes(NamedTuple):
    """Columns: time of one cause (`LABELS`) at one line."""

    label: Ints
    source: Ints
    inside: Ints
    ns: Floats

    def total(self, label: str) -> float:
        return float(self.ns[self.label == LABELS.index(label)].sum())

    def positive(self) -> LineTimes:
        """Rows by line and cause, without those whose corrected time is not positive."""
        keys, member = np.unique(np.stack(self[:3]), axis=1, return_inverse=True)
        ns = np.zeros(keys.shape[1])
        np.add.at(ns, member.ravel(), self.ns)
        label, source, inside = keys[:, ns > 0]
        return LineTimes(label, source, inside, ns[ns > 0])

    def scaled(self, totals: Mapping[str, float]) -> list[LineTime]:
        """Scaled so that each cause adds up to the account; the rest has no line."""
        summed = self.positive()
        rows = []
        for label, total in totals.items():
            of_cause = summed.label == (LABELS.index(label) if label in LABELS else -1)
            measured_ns = float(summed.ns[of_cause].sum())
            if total and not measured_ns:
                rows.append(LineTime(label, -1, -1, total))
                continue
            for source, inside, ns in zip(
                *(column[of_cause].tolist() for column in summed[1:]), strict=True
            ):
                rows.append(LineTime(label, source, inside, total * ns / measured_ns))
        return rows


def idle_time_by_line(timeline: Timeline, where: HostIntervals, gaps: Gaps) -> LineTimes:
    """The device's idle time by the line of the host at that time.

    Time from a launch until the kernel starts is at the launch's line. A sync keeps the host from
    running ahead by at most its own duration: that much of the following idle time is at its line,
    the rest at the host's lines.
    """
    intervals = _gap_intervals(timeline, where, gaps)
    host, count = timeline.host, len(gaps.start_ns)
    source = np.append(host.source, -1).astype(np.int64)
    inside = np.append(_inside(timeline), -1)
    cause_ns = np.stack([gaps.parts[label] for label in LABELS])
    sync_duration_ns = np.append(host.duration_ns, 0)[gaps.syncs].astype(np.float64)
    sync_line_ns = np.where(gaps.syncs >= 0, np.minimum(sync_duration_ns, cause_ns[_SYNC]), 0.0)
    cause_ns[_SYNC] -= sync_line_ns
    recorded_ns = np.zeros_like(cause_ns)
    np.add.at(recorded_ns, (intervals.label, intervals.gap), intervals.ns)
    is_unrecorded = recorded_ns == 0
    scale = np.divide(cause_ns, recorded_ns, out=np.zeros_like(cause_ns), where=~is_unrecorded)
    unrecorded_label, unrecorded_gap = np.nonzero(is_unrecorded & (cause_ns > 0))
    each_gap = np.arange(count)
    return LineTimes(
        np.concatenate([intervals.label, np.full(count, _SYNC), unrecorded_label]),
        np.concatenate(
            [intervals.source, source[gaps.syncs[each_gap]], source[gaps.launches[unrecorded_gap]]]
        ),
        np.concatenate(
            [intervals.inside, inside[gaps.syncs[each_gap]], inside[gaps.launches[unrecorded_gap]]]
        ),
        np.concatenate(
            [
                intervals.ns * scale[intervals.label, intervals.gap],
                sync_line_ns,
                cause_ns[unrecorded_label, unrecorded_gap],
            ]
        ),
    )


class _GapIntervals(NamedTuple):
    """Columns: the host's intervals in a gap before the launch that ends it, and the latency
    after."""

    gap: Ints
    label: Ints
    source: Ints
    inside: Ints
    ns: Floats


def _gap_intervals(timeline: Timeline, where: HostIntervals, gaps: Gaps) -> _GapIntervals:
    """The host's intervals in each gap, by line and cause; then each gap's launch latency."""
    host = timeline.host
    ends = np.append(host.start_ns + host.duration_ns, np.iinfo(np.int64).max)
    issued = np.clip(ends[gaps.launches], gaps.start_ns, gaps.end_ns)
    labels = _labels(timeline)
    is_observer = np.append(_is_observer(timeline), False)
    pieces = []
    for thread in np.unique(gaps.threads):
        thread_gaps, thread_intervals = (
            np.flatnonzero(gaps.threads == thread),
            where.on(int(thread)),
        )
        starts, stops = where.start_ns[thread_intervals], where.end_ns[thread_intervals]
        if not len(starts):
            continue
        synced = np.clip(
            gaps.synced_ns[thread_gaps], gaps.start_ns[thread_gaps], issued[thread_gaps]
        )
        edges = [starts, stops, gaps.start_ns[thread_gaps], synced, issued[thread_gaps]]
        times = np.unique(np.concatenate(edges))
        at, lengths = times[:-1], np.diff(times).astype(np.float64)
        gap = np.searchsorted(gaps.start_ns[thread_gaps], at, side="right") - 1
        interval = np.searchsorted(starts, at, side="right") - 1
        is_inside = (gap >= 0) & (interval >= 0)
        is_inside[is_inside] &= (at < issued[thread_gaps][gap])[is_inside] & (at < stops[interval])[
            is_inside
        ]
        at, lengths = at[is_inside], lengths[is_inside]
        gap, interval = thread_gaps[gap[is_inside]], interval[is_inside] + thread_intervals.start
        rows = where.row[interval]
        label = labels[rows]
        ns = np.where(is_observer[rows], 0.0, lengths)
        pieces.append(_GapIntervals(gap, label, where.source[interval], where.inside[interval], ns))
    each_gap = np.arange(len(gaps.start_ns))
    latency_label = np.where(gaps.parts["sync"] > gaps.parts["launch"], _SYNC, _LAUNCH)
    latency_label = np.where(gaps.parts["unseen"] > 0, _UNSEEN, latency_label)
    source = np.append(host.source, -1)[gaps.launches].astype(np.int64)
    inside = np.append(_inside(timeline), -1)[gaps.launches]
    latency = np.where(gaps.launches >= 0, gaps.end_ns - issued, 0).astype(np.float64)
    pieces.append(_GapIntervals(each_gap, latency_label, source, inside, latency))
    return _GapIntervals(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def host_time_by_line(
    timeline: Timeline, where: HostIntervals, dispatch: DispatchCost, dilation: ProfilerOverhead
) -> LineTimes:
    """Time of the step's main thread besides its operators' work, by line.

    At an operator's line this is its dispatch; at any line, time outside of operators, without the
    profiler overhead there.
    """
    host = timeline.host
    thread = main_thread(timeline)
    main_intervals = where.on(thread)
    inside = _inside(timeline)
    outside = np.append(nearest(host.parent, dispatch.counted) < 0, True)
    outside &= ~np.append(_is_observer(timeline), False)
    labels = np.where(_labels(timeline) == _DATA, _DATA, _PYTHON)
    lengths = (where.end_ns - where.start_ns)[main_intervals].astype(np.float64)
    lengths -= dilation.stretch_ns[main_intervals]
    counted = outside[where.row[main_intervals]]
    events = np.flatnonzero((host.thread == thread) & outside[:-1])
    rows = np.flatnonzero(dispatch.counted)
    pieces = [
        LineTimes(
            labels[where.row[main_intervals]][counted],
            where.source[main_intervals][counted],
            where.inside[main_intervals][counted],
            lengths[counted],
        ),
        LineTimes(
            labels[events],
            called_from(host)[events].astype(np.int64),
            inside[events],
            -dilation.event_ns[events],
        ),
    ]
    outer = _joined(pieces).positive()
    dispatches = host.source[rows].astype(np.int64), inside[rows], dispatch.ns[rows]
    # Clean steps may wait for batches that the profiled one found ready: at the same lines.
    loads = np.flatnonzero((host.thread == thread) & (host.kind == HostKind.DATA))
    waits = host.source[loads].astype(np.int64), inside[loads], np.full(len(loads), _INSTANT_NS)
    return _joined(
        [outer, LineTimes(labels[rows], *dispatches), LineTimes(np.full(len(loads), _DATA), *waits)]
    )


def _joined(pieces: Sequence[LineTimes]) -> LineTimes:
    return LineTimes(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _labels(timeline: Timeline) -> Ints:
    """The cause of time in each row; the last entry is for time in no row."""
    host = timeline.host
    label = np.full(len(host) + 1, _PYTHON, np.int64)
    label[:-1][nearest(host.parent, host.kind == HostKind.LAUNCH) >= 0] = _LAUNCH
    label[:-1][nearest(host.parent, host.kind == HostKind.DATA) >= 0] = _DATA
    return label


def _is_observer(timeline: Timeline) -> Mask:
    host = timeline.host
    profiler = np.array([bool(_PROFILER.search(name)) for name in timeline.names] or [False])
    is_observer: Mask = host.kind == HostKind.OBSERVER
    is_observer |= nearest(host.parent, profiler[host.name]) >= 0
    return is_observer


def _inside(timeline: Timeline) -> Ints:
    inside = timeline.host.inside
    return np.full(len(timeline.host), -1, np.int64) if inside is None else inside.astype(np.int64)
