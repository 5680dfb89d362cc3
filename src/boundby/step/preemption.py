"""Removes from a profiled step on a CPU the time in which its thread was preempted inside calls.

The profiler records an interrupted call with all of the time until its thread has a core again. The
total is known; where it was lost shows at calls that took far longer than others of their kind. The
rest was lost between events that are far enough apart for it.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.model import PYTHON_FRAMES, HostKind, Ints, OpCall, Timeline
from boundby.model.intervals import Coverage
from boundby.step.host_intervals import main_thread
from boundby.step.nesting import Mask

Floats = npt.NDArray[np.float64]

# Linux gives a core to another thread for 0.7 ms or longer (`base_slice_ns`); shorter waits cannot
# be told from calls that differ.
_SHORTEST_NS = 500_000.0
_FEWEST_PEERS = 3  # for a median
# A call whose excess is more than this many times the lost time had another reason.
_AT_MOST = 1.2
_MOST_LOST = 0.9  # of a stretch
_WITH_WORKERS = "_MultiProcessing"
_SPREADS = 4.0  # median absolute deviations


def without_preemption(timeline: Timeline, lost_ns: float) -> tuple[Timeline, float]:
    """The step without the lost time that can be located, and the remaining lost time.

    A call whose own time exceeds its peers' by no more than what was lost gets their median; the
    longest first, until no lost time remains. What remains is taken from all long stretches between
    two events, in proportion: a thread that issues events all the time has a core. Later events
    move forward.
    """
    if lost_ns < _SHORTEST_NS or len(timeline.device):
        return timeline, lost_ns
    host = timeline.host
    on_main_thread = host.thread == main_thread(timeline)
    own = _own_times(timeline)
    excess = _excess(
        timeline, own, on_main_thread & np.isin(host.kind, (HostKind.OP, *PYTHON_FRAMES))
    )
    cuts = []
    remaining_ns = lost_ns
    for row in np.argsort(-excess, kind="stable").tolist():
        if excess[row] < _SHORTEST_NS or remaining_ns < _SHORTEST_NS:
            break
        if excess[row] <= _AT_MOST * remaining_ns:
            start, end = _longest_stretch(timeline, row)
            cut = min(excess[row], remaining_ns, float(end - start))
            cuts.append((start, int(cut)))
            remaining_ns -= int(cut)
    located = _shortened(timeline, sorted(cuts)) if cuts else timeline
    spread = _spread(located, remaining_ns)
    left_ns = remaining_ns - sum(length for _, length in spread)
    return (_shortened(located, spread) if spread else located), max(0.0, left_ns)


def _spread(timeline: Timeline, lost_ns: float) -> list[tuple[int, int]]:
    """The lost time as parts of the stretches between two events in which a wait may lie."""
    host = timeline.host
    rows = host.thread == main_thread(timeline)
    starts, ends = host.start_ns[rows], (host.start_ns + host.duration_ns)[rows]
    edges = np.unique(np.concatenate([starts, ends, [timeline.start_ns, timeline.end_ns]]))
    edges = edges[(edges >= timeline.start_ns) & (edges <= timeline.end_ns)]
    lengths = np.diff(edges)
    # Waiting for another process's batch needs no core.
    named = np.array([_WITH_WORKERS in name for name in timeline.names] or [False])
    waits = (host.kind == HostKind.DATA) & named[host.name]
    waited_ns = Coverage(host.start_ns[waits], host.duration_ns[waits]).between(
        edges[:-1], edges[1:]
    )
    long = (lengths >= _SHORTEST_NS) & (waited_ns == 0)
    if lost_ns < _SHORTEST_NS or not long.any():
        return []
    part = min(_MOST_LOST, lost_ns / float(lengths[long].sum()))
    return [
        (int(start), int(part * length))
        for start, length in zip(edges[:-1][long].tolist(), lengths[long].tolist(), strict=True)
    ]


def _own_times(timeline: Timeline) -> Floats:
    """Durations minus those of the rows directly inside."""
    host = timeline.host
    own_ns = host.duration_ns.astype(np.float64)
    inner = np.flatnonzero(host.parent >= 0)
    np.subtract.at(own_ns, host.parent[inner], host.duration_ns[inner])
    return own_ns


def _excess(timeline: Timeline, own: Floats, candidate: Mask) -> Floats:
    """The time by which each call exceeds its peers, if it is far longer; else zero.

    Peers are calls of the same name with the same shapes or, if there are too few, the same
    operator with tensors at least as large.
    """
    host, calls = timeline.host, timeline.calls
    shapes = [tuple((t.shape, t.dtype) for t in call.tensors) for call in calls]
    elements = np.array([*map(_elements, calls), 0])[host.call]
    by_shapes: dict[tuple[object, ...], list[int]] = defaultdict(list)
    by_name: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(candidate).tolist():
        name, call = int(host.name[row]), int(host.call[row])
        by_shapes[name, shapes[call] if call >= 0 else ()].append(row)
        by_name[name].append(row)
    excess = np.zeros(len(host))
    for rows in by_shapes.values():
        longest = max(rows, key=lambda row: own[row])
        if own[longest] < _SHORTEST_NS:
            continue
        peers = rows
        if len(rows) <= _FEWEST_PEERS and int(host.call[longest]) >= 0:
            peers = [
                row
                for row in by_name[int(host.name[longest])]
                if elements[row] >= elements[longest]
            ]
        if len(peers) <= _FEWEST_PEERS:
            continue
        usual = float(np.median(own[peers]))
        spread = float(np.median(np.abs(own[peers] - usual)))
        far = max(_SHORTEST_NS, usual, _SPREADS * spread)
        over = own[rows] - usual
        excess[rows] = np.where(over >= far, over, 0.0)
    return excess


def _elements(call: OpCall) -> int:
    return sum(tensor.elements for tensor in call.tensors)


def _longest_stretch(timeline: Timeline, row: int) -> tuple[int, int]:
    """Start and end of the longest interval that a row spent in nothing inside it."""
    host = timeline.host
    inner = np.flatnonzero(host.parent == row)
    ends = host.start_ns + host.duration_ns
    begins = np.append(host.start_ns[row], ends[inner])
    stops = np.append(host.start_ns[inner], ends[row])
    at = int(np.argmax(stops - begins))
    return int(begins[at]), int(stops[at])


def _shortened(timeline: Timeline, cuts: list[tuple[int, int]]) -> Timeline:
    """The step with these intervals, each a start and a length, cut out."""

    def moved(times: Ints) -> Ints:
        removed_ns = np.zeros(len(times), np.int64)
        for start, length in cuts:
            removed_ns += np.clip(times - start, 0, length)
        return times - removed_ns

    host, samples, phases = timeline.host, timeline.samples, timeline.phases
    starts, ends = moved(host.start_ns), moved(host.start_ns + host.duration_ns)
    replace = msgspec.structs.replace
    return replace(
        timeline,
        start_ns=int(moved(np.array([timeline.start_ns]))[0]),
        end_ns=int(moved(np.array([timeline.end_ns]))[0]),
        host=replace(host, start_ns=starts, duration_ns=ends - starts),
        samples=samples and replace(samples, start_ns=moved(samples.start_ns)),
        phases=phases and replace(phases, start_ns=moved(phases.start_ns)),
    )
