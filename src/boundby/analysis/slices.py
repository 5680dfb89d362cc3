"""The step as intervals on lanes, for the page and for Perfetto: host above device, with causes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.analysis.account import Attribution
from boundby.model import PYTHON_FRAMES, HostKind, Ints, Timeline
from boundby.model.intervals import union
from boundby.model.rows import Slice
from boundby.step.idle_causes import LABELS, Gaps, gap_causes
from boundby.step.op_record import shapes_of

MOST_SLICES = 20_000  # what a browser draws without delay
# With this many kernels, each keeps its launch, and there is still room for the host's events.
_MOST_ON_DEVICE = 7_000
_MOST_GAPS = 3_000  # display limit
# Shorter gaps of the device are not shown.
_SHORTEST_GAP_NS = 1_000
_MODULE = "nn.Module: "
# A gap is shown as caused by a sync if at least this share of it is.
_BEGUN_BY_SYNC = 0.25

Mask = npt.NDArray[np.bool_]


def slices_of(timeline: Timeline, attribution: Attribution) -> list[Slice]:
    """The slices of a step, at most 20,000: the longest of each kind, in order of lanes, then of
    time.

    A kernel's launch is kept with it. Python frames are left out, because they nest too deep for a
    screen, except modules and functions without operators: the time of Python itself.
    """
    device = timeline.device
    on_device = _longest(device.duration_ns, np.ones(len(device), np.bool_), _MOST_ON_DEVICE)
    gaps, kept_gaps = _gaps(timeline)
    launched = device.launch[on_device]
    required = np.zeros(len(timeline.host), np.bool_)
    required[launched[launched >= 0]] = True
    room = MOST_SLICES - len(on_device) - len(kept_gaps) - int(required.sum())
    others = _longest(timeline.host.duration_ns, _shown_rows(timeline) & ~required, room)
    on_host = np.sort(np.concatenate([np.flatnonzero(required), others]))
    lookup = _Lookup(timeline, attribution)
    slices = [lookup.of_host(int(row)) for row in on_host]
    slices += [_idle_slice(timeline, gaps, int(gap)) for gap in kept_gaps]
    position = np.full(len(timeline.host) + 1, -1, np.int64)
    position[on_host] = np.arange(len(on_host))
    order = np.lexsort((device.start_ns[on_device], device.stream[on_device]))
    for event in on_device[order]:
        slices.append(lookup.of_device(int(event), int(position[device.launch[event]])))
    return slices


def _longest(durations: Ints, wanted: Mask, most: int) -> Ints:
    """The rows wanted, in their order; only the longest if there are too many."""
    rows = np.flatnonzero(wanted)
    if len(rows) > most:
        rows = np.sort(rows[np.argsort(-durations[rows], kind="stable")[: max(0, most)]])
    return rows


def _gaps(timeline: Timeline) -> tuple[Gaps | None, Ints]:
    device = timeline.device
    if not len(device):
        return None, np.empty(0, np.int64)
    gaps = gap_causes(timeline, *union(device.start_ns, device.duration_ns))
    lengths = gaps.end_ns - gaps.start_ns
    return gaps, _longest(lengths, lengths >= _SHORTEST_GAP_NS, _MOST_GAPS)


def _shown_rows(timeline: Timeline) -> Mask:
    host = timeline.host
    is_module = np.array([name.startswith(_MODULE) for name in timeline.names] or [False])
    python = np.isin(host.kind, PYTHON_FRAMES)
    shown: Mask = ~python | is_module[host.name] | _python_without_operators(timeline)
    return shown


def _python_without_operators(timeline: Timeline) -> Mask:
    """Python functions with no operator and no runtime call inside, the outermost ones."""
    host = timeline.host
    python = np.isin(host.kind, PYTHON_FRAMES)
    # Rows inside another follow it directly: counted up to the first that starts later.
    after = np.empty(len(host), np.int64)
    ends = host.start_ns + host.duration_ns
    for thread in np.unique(host.thread):
        rows = np.flatnonzero(host.thread == thread)
        after[rows] = rows[0] + np.searchsorted(host.start_ns[rows], ends[rows], side="left")
    busy = np.concatenate([[0], np.cumsum(~python)])
    here = np.arange(len(host))
    after = np.maximum(after, here + 1)
    alone = python & (busy[after] == busy[here])
    outer = (host.parent >= 0) & alone[host.parent]
    shown: Mask = alone & ~outer & (host.kind != HostKind.OBSERVER)
    return shown


def _idle_slice(timeline: Timeline, gaps: Gaps | None, gap: int) -> Slice:
    assert gaps is not None
    cause = max(LABELS, key=lambda label: gaps.parts[label][gap])
    if gaps.parts["sync"][gap] >= _BEGUN_BY_SYNC * (gaps.end_ns[gap] - gaps.start_ns[gap]):
        cause = "sync"
    launch = int(gaps.launches[gap])
    source = int(timeline.host.source[launch]) if launch >= 0 else -1
    return Slice(
        lane="idle",
        name="idle",
        start_ns=float(gaps.start_ns[gap] - timeline.start_ns),
        ns=float(gaps.end_ns[gap] - gaps.start_ns[gap]),
        cause=cause,
        where=_entry(timeline.sources, source),
    )


class _Lookup:
    """For each row of a timeline its operation, and the operation's row in the table."""

    def __init__(self, timeline: Timeline, attribution: Attribution) -> None:
        self._timeline = timeline
        self._op_records = attribution.op_records
        self._member = attribution.member
        rows = {
            (row.name, row.bound, row.where, row.inside, row.shapes): index
            for index, row in enumerate(attribution.ops)
        }
        shapes = {-1: ""}
        for call in {record.call for record in self._op_records} - {-1}:
            shapes[call] = shapes_of(timeline.calls[call])
        self._op_of_work = [
            rows.get(
                (
                    record.name,
                    record.bound,
                    _entry(timeline.sources, record.source),
                    _entry(timeline.sources, record.inside),
                    shapes[record.call],
                )
            )
            for record in self._op_records
        ]
        self._record_of_row = {record.row: index for index, record in enumerate(self._op_records)}

    def of_host(self, row: int) -> Slice:
        timeline = self._timeline
        host = timeline.host
        index = self._record_of_row.get(row)
        # On a CPU operators are the work itself; on a device they only launch it.
        on_cpu = index is not None and not len(timeline.device)
        record = self._op_records[index] if index is not None and on_cpu else None
        return Slice(
            lane="host",
            number=int(host.thread[row]),
            name=timeline.names[host.name[row]],
            start_ns=float(host.start_ns[row] - timeline.start_ns),
            ns=float(host.duration_ns[row]),
            where=_entry(timeline.sources, int(host.source[row])),
            op=self._op_of_work[index] if index is not None else None,
            bound=record.bound if record else None,
            floor_ns=record.floor_ns if record else None,
            cause=_HOST_CAUSES.get(int(host.kind[row])),
        )

    def of_device(self, event: int, flow: int) -> Slice:
        timeline = self._timeline
        device = timeline.device
        index = int(self._member[event])
        record = self._op_records[index]
        ns = float(device.duration_ns[event])
        floor = record.floor_ns
        return Slice(
            lane="stream",
            number=int(device.stream[event]),
            name=timeline.names[device.name[event]],
            start_ns=float(device.start_ns[event] - timeline.start_ns),
            ns=ns,
            op=self._op_of_work[index],
            bound=record.bound,
            # An operator's roofline minimum is divided among its kernels by their time.
            floor_ns=floor * ns / record.ns if floor is not None and record.ns else floor,
            where=_entry(timeline.sources, record.source),
            flow=flow if flow >= 0 else None,
        )


# The host's row, if its kind is itself a cause of idle time.
_HOST_CAUSES: dict[int, str] = {
    HostKind.LAUNCH: "launch",
    HostKind.SYNC: "sync",
    HostKind.DATA: "data",
}


def _entry(table: list[str], index: int) -> str | None:
    return table[index] if 0 <= index < len(table) else None
