"""The critical path of the simulated step, summed by what is on it and by source line."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from boundby.analysis.account import Attribution
from boundby.model import Timeline
from boundby.model.rows import CriticalPathRow, PathPart, SlackRow
from boundby.step.simulator import LaunchSequence, PathKind, Segment, critical_path, slack

_MOST_ROWS = 30  # display limit


class _Key(NamedTuple):
    kind: PathPart
    what: str
    source: int


def critical_path_rows(
    launches: LaunchSequence, timeline: Timeline, attribution: Attribution
) -> list[CriticalPathRow]:
    """The longest rows first; shares are of the whole path, which is as long as the step."""
    ns: dict[_Key, float] = defaultdict(float)
    count: dict[_Key, int] = defaultdict(int)
    for segment in critical_path(launches):
        for key, part in _parts(segment, launches, timeline, attribution):
            ns[key] += part
            count[key] += 1
    whole = sum(ns.values())
    rows = [
        CriticalPathRow(
            kind=key.kind,
            what=key.what,
            where=timeline.sources[key.source] if 0 <= key.source < len(timeline.sources) else None,
            count=count[key],
            ns=total,
            share=total / whole,
        )
        for key, total in ns.items()
    ]
    return sorted(rows, key=lambda row: -row.ns)[:_MOST_ROWS]


def slack_rows(
    launches: LaunchSequence, timeline: Timeline, attribution: Attribution
) -> list[SlackRow]:
    """Device work that is not on the critical path, the longest first."""
    calls: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    members = attribution.member[launches.order].tolist()
    spare = slack(launches).tolist()
    for member, ns, slack_ns in zip(members, launches.device_ns.tolist(), spare, strict=True):
        if slack_ns > 0 and member >= 0:
            record = attribution.op_records[member]
            calls[record.name, record.source].append((ns, slack_ns))
    rows = [
        SlackRow(
            what=what,
            where=timeline.sources[source] if 0 <= source < len(timeline.sources) else None,
            count=len(indices),
            ns=sum(ns for ns, _ in indices),
            slack_ns=min(slack_ns for _, slack_ns in indices),
        )
        for (what, source), indices in calls.items()
    ]
    return sorted(rows, key=lambda row: -row.ns)[:_MOST_ROWS]


def _parts(
    segment: Segment, launches: LaunchSequence, timeline: Timeline, attribution: Attribution
) -> list[tuple[_Key, float]]:
    if segment.kind is PathKind.END:
        return [(_Key("host", "after the last launch", -1), segment.ns)]
    if segment.kind is PathKind.HOST:
        return _host_parts(segment, launches, timeline)
    member = int(attribution.member[launches.order[segment.number]])
    record = attribution.op_records[member] if member >= 0 else None
    source = record.source if record is not None else -1
    if segment.kind is PathKind.KERNEL:
        return [(_Key("kernel", record.name if record else "unknown", source), segment.ns)]
    if segment.kind is PathKind.LATENCY:
        return [(_Key("latency", "from a launch to its kernel", -1), segment.ns)]
    return [(_Key("gap", "between kernels of a stream", -1), segment.ns)]


def _host_parts(
    segment: Segment, launches: LaunchSequence, timeline: Timeline
) -> list[tuple[_Key, float]]:
    """The host's time before an action, at the action's line, without waiting for data."""
    action = segment.number
    row = int(launches.rows[action]) if len(launches.rows) else -1
    source = int(timeline.host.source[row]) if row >= 0 else -1
    waited = float(launches.data_ns[action]) if len(launches.data_ns) else 0.0
    waited = min(waited, segment.ns)
    parts: list[tuple[_Key, float]] = []
    if waited > 0:
        parts.append((_Key("data", "waiting for data", source), waited))
    if segment.ns > waited:
        parts.append((_Key("host", "host", source), segment.ns - waited))
    return parts
