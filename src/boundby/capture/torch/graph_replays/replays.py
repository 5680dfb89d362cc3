"""The timeline of a step that replays graphs, with what was recorded when they were captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from boundby.capture.torch.graph_replays.alignment import Alignment, align
from boundby.capture.torch.graph_replays.recording import Recording
from boundby.model import DeviceKind, OpCall, Timeline

Rows = npt.NDArray[np.int32]

_LAUNCH = "GraphLaunch"
# A recording that has an operator for less of a graph's kernels than this is another's; or, where
# it is known to be this graph's, not to be trusted: libraries launch kernels of their own.
_LEAST_FIT = 0.6
_LEAST_FIT_OF_ITS_OWN = 0.3
# Where it is not known which graph was replayed, so many recordings are tried, the latest first.
_MOST_TRIED = 16
_KINDS = (DeviceKind.KERNEL, DeviceKind.COPY_D2D, DeviceKind.MEMSET)


class _Candidate(NamedTuple):
    recording: Recording
    alignment: Alignment


def attach_operators(
    timeline: Timeline,
    recordings: Mapping[int, Recording],
    replayed: Sequence[int] | None,
    kernel_lines: Mapping[str, str],
) -> Timeline:
    """The same timeline; kernels of graphs have the calls that their capture recorded.

    `replayed` names the recording of each graph that the step launched, in order, as the script
    asked for them; None where that is not known. `kernel_lines` says where compiled kernels came
    from. A kernel that no recorded operator fits, or two equally well, is left as it is.
    """
    device = timeline.device
    if not device.graph.any():
        return timeline
    launches, launched_by = _launches(timeline)
    known = replayed if replayed is not None and len(replayed) == len(launches) else None
    if known is None and not set(replayed or ()) <= set(recordings):
        # Some graph was not recorded: another's recording could fit it as well.
        recordings = {}
    call, share = _own_calls(timeline), np.full(len(device), -1, np.int32)
    calls, numbers = list(timeline.calls), dict[OpCall, int]()
    seen: dict[tuple[int, tuple[str, ...]], list[_Candidate]] = {}
    lines: dict[int, str] = {}
    shares = 0
    for position, launch in enumerate(launches):
        rows = np.flatnonzero((launched_by == launch) & np.isin(device.kind, _KINDS))
        names = tuple(timeline.names[name] for name in device.name[rows])
        key = known[position] if known is not None else -1
        if (key, names) not in seen:
            tried = _tried(recordings, None if known is None else key)
            least = _LEAST_FIT if known is None else _LEAST_FIT_OF_ITS_OWN
            seen[key, names] = _candidates(timeline, rows, names, tried, least)
        for row, place in _agreed(seen[key, names], rows).items():
            operator = seen[key, names][0].recording.operators[place]
            if device.kind[row] == DeviceKind.KERNEL:
                number = numbers.setdefault(operator.call, len(calls))
                if number == len(calls):
                    calls.append(operator.call)
                call[row], share[row] = number, shares + place
                if operator.source is not None:
                    lines[row] = operator.source
        shares += max((len(c.recording.operators) for c in seen[key, names]), default=0)
    source, sources = _sources(timeline, lines, kernel_lines)
    device = msgspec.structs.replace(device, call=call, share=share, source=source)
    return msgspec.structs.replace(timeline, device=device, calls=calls, sources=sources)


def _launches(timeline: Timeline) -> tuple[list[int], Rows]:
    """The host rows that launched a graph, in order of time; and for each device row its own.

    A driver's call inside the runtime's is the same launch, whichever of them a kernel names.
    """
    host, device = timeline.host, timeline.device
    is_launch = np.array([_LAUNCH in name for name in timeline.names] or [False])[host.name]
    inside = is_launch & np.append(is_launch, False)[host.parent]
    outer = np.where(inside, host.parent, np.arange(len(host))).astype(np.int32)
    rows = np.flatnonzero(is_launch & ~inside)
    rows = rows[np.argsort(host.start_ns[rows], kind="stable")]
    return rows.tolist(), np.append(outer, -1)[device.launch].astype(np.int32)


def _own_calls(timeline: Timeline) -> Rows:
    call = timeline.device.call
    return np.full(len(timeline.device), -1, np.int32) if call is None else call.copy()


def _tried(recordings: Mapping[int, Recording], key: int | None) -> list[Recording]:
    if key is not None:
        return [recordings[key]] if key in recordings else []
    latest = sorted(recordings, reverse=True)[:_MOST_TRIED]
    return [recordings[key] for key in latest]


def _candidates(
    timeline: Timeline,
    rows: npt.NDArray[np.int64],
    names: tuple[str, ...],
    recordings: Sequence[Recording],
    least: float,
) -> list[_Candidate]:
    """The recordings that fit best; more than one where they fit alike."""
    sized = frozenset(
        name
        for row, name in zip(rows.tolist(), names, strict=True)
        if timeline.device.kind[row] != DeviceKind.KERNEL
    )
    found = [
        _Candidate(recording, align(names, recording.operators, loose=sized))
        for recording in recordings
    ]
    best = max((candidate.alignment.score for candidate in found), default=0.0)
    return [
        candidate
        for candidate in found
        if candidate.alignment.score == best and candidate.alignment.fit >= least
    ]


def _agreed(candidates: Sequence[_Candidate], rows: npt.NDArray[np.int64]) -> dict[int, int]:
    """By device row the place of its operator, where all candidates name the same call."""
    agreed: dict[int, int] = {}
    for position, row in enumerate(rows.tolist() if candidates else ()):
        places = [int(candidate.alignment.operator[position]) for candidate in candidates]
        if min(places) < 0:
            continue
        first, *others = (
            candidate.recording.operators[place].call
            for candidate, place in zip(candidates, places, strict=True)
        )
        if all(call == first for call in others):
            agreed[row] = places[0]
    return agreed


def _sources(
    timeline: Timeline, lines: Mapping[int, str], kernel_lines: Mapping[str, str]
) -> tuple[Rows, list[str]]:
    """The lines of kernels in graphs, and the table with them in it.

    A compiled kernel is known by name: where it is called from is generated code.
    """
    device = timeline.device
    index = {name: position for position, name in enumerate(timeline.sources)}
    source = np.full(len(device), -1, np.int32)
    for row in np.flatnonzero(device.graph).tolist():
        line = kernel_lines.get(timeline.names[device.name[row]]) or lines.get(row)
        if line is not None:
            source[row] = index.setdefault(line, len(index))
    return source, list(index)
