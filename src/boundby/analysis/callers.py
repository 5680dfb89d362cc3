"""A source line's time by the line that called its function: a forward run twice has two
callers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from boundby.model import HostKind, Ints, Timeline
from boundby.model.rows import CallerRow, LineRow
from boundby.step.nesting import nearest
from boundby.step.op_record import OpRecord

# Callers with a smaller share of a line are not listed separately.
_COUNTS = 0.02
# The most stack levels between two calls of one function and the frame they share.
_MOST_LEVELS = 12
_MOST_CALLERS = 8  # display limit


def with_callers(
    rows: Sequence[LineRow], op_records: Sequence[OpRecord], timeline: Timeline
) -> list[LineRow]:
    """The rows, each divided by caller if its function has callers in the script.

    If all calls come from one line, which may itself be in a function called from several lines,
    the innermost callers that differ are used. Time outside of operators is divided in the
    operators' proportions.
    """
    called = timeline.host.called
    if called is None or not op_records:
        return list(rows)
    function, caller, above = _functions(timeline, called.astype(np.int64))
    by_line: dict[str, list[OpRecord]] = defaultdict(list)
    for record in op_records:
        if record.source >= 0 and record.row >= 0:
            by_line[timeline.sources[record.source]].append(record)
    forward = timeline.host.forward
    divided = []
    for row in rows:
        records = by_line.get(row.where, [])
        at = np.array([record.row for record in records], np.int64)
        at = np.where(forward[at] >= 0, forward[at], at)
        ns = np.array([record.exposed_ns for record in records])
        split = _split(row, function[at], ns, caller, above, timeline.sources)
        divided.append(msgspec.structs.replace(row, callers=split) if split else row)
    return divided


def _functions(timeline: Timeline, called: Ints) -> tuple[Ints, Ints, Ints]:
    """For each row the script's function around it; for each function its caller's line and the
    function around that. A module is called by nothing of the script's."""
    host = timeline.host
    module = np.array([name.endswith(": <module>") for name in timeline.names] or [False])
    of_script = (host.kind == HostKind.PYTHON) & (called >= 0) & (called != host.source)
    function = np.append(nearest(host.parent, of_script), -1)
    above = np.append(function[np.append(host.parent, -1)], -1)
    caller = np.where((host.kind == HostKind.PYTHON) & module[host.name], -1, called)
    return function, np.append(caller, -1), above


def _split(
    row: LineRow, function: Ints, ns: np.ndarray, caller: Ints, above: Ints, sources: list[str]
) -> list[CallerRow]:
    """The row divided by its innermost callers at the first level where several are significant;
    otherwise by its only caller."""
    innermost: list[CallerRow] = []
    has_function = function >= 0
    at, ns = function[has_function], ns[has_function]
    total = float(ns.sum())
    if total <= 0:
        return []
    for _ in range(_MOST_LEVELS):
        rows = _by_caller(row, at, ns / total, caller, sources)
        if len(rows) > 1:
            return rows
        innermost = innermost or rows
        at = above[at]
        if not len(at) or (at < 0).any():
            break
    return innermost


def _by_caller(
    row: LineRow, function: Ints, share: np.ndarray, caller: Ints, sources: list[str]
) -> list[CallerRow]:
    places: dict[int, float] = defaultdict(float)
    calls: dict[int, set[int]] = defaultdict(set)
    for place, call, part in zip(
        caller[function].tolist(), function.tolist(), share.tolist(), strict=True
    ):
        places[place] += part
        calls[place].add(call)
    counted = {place: part for place, part in places.items() if place >= 0 and part >= _COUNTS}
    whole = sum(counted.values())
    ranked = sorted(counted, key=lambda place: -counted[place])[:_MOST_CALLERS]
    return [
        CallerRow(where=sources[place], ns=row.ns * counted[place] / whole, count=len(calls[place]))
        for place in ranked
    ]
