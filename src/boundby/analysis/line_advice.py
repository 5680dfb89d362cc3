"""A sentence on the costliest line: what it does, what bounds it, what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from boundby.model import units
from boundby.model.assumptions.detection import AT_ROOF
from boundby.model.finding import Finding
from boundby.model.rows import NO_LINE, LineRow, OpRow

# How many of a line's operators are named.
_MOST_OPS = 2
_COUNTS = 0.005  # of the time of a line: less is not named
# A finding that saves less than this share of a line is not what the line is about.
_SMALL_PART = 0.1
OVERHEAD_PARTS = {
    "python": "Python and framework code",
    "launch": "launching kernels",
    "sync": "waiting for the device",
    "data": "waiting for data",
    "unseen": "waiting for something that the trace does not show",
    "core": "waiting for a CPU core",
    "small_kernels": "kernels too small for the device",
}


def with_advice(
    lines: Sequence[LineRow], ops: Sequence[OpRow], findings: Sequence[Finding]
) -> list[LineRow]:
    """The lines; the costliest of the script's own gets a sentence."""
    first = next((at for at, row in enumerate(lines) if row.where != NO_LINE), None)
    if first is None:
        return list(lines)
    row = lines[first]
    words = " ".join([_does(row, ops), _bounded(row), _do(row, findings)])
    advised = msgspec.structs.replace(row, advice=words)
    return [*lines[:first], advised, *lines[first + 1 :]]


def _does(row: LineRow, ops: Sequence[OpRow]) -> str:
    ns: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for op in ops:
        if op.where == row.where:
            ns[op.name] += op.ns
            counts[op.name] += op.count
    named = sorted(ns, key=lambda name: -ns[name])[:_MOST_OPS]
    if not named:
        return "It runs no operator of its own."
    total = sum(ns.values())
    if total <= _COUNTS * row.ns:
        return "Its operators take nearly none of its time."
    words = " and ".join(
        f"{name} ({units.share(ns[name] / total)} of its operator time"
        + (f", {counts[name]} calls)" if counts[name] > 1 else ")")
        for name in named
    )
    several = len(row.callers) > 1
    twice = f" for {len(row.callers)} different callers" if several else ""
    return f"It mostly runs {words}{twice}."


def _bounded(row: LineRow) -> str:
    group = max(row.groups, key=lambda name: row.groups[name], default="unknown")
    share = row.groups.get(group, 0.0) / row.ns if row.ns else 0.0
    if group == "unknown":
        return (
            "Its bound is unknown, because the cost of its operators or the device's roofs are "
            "unknown."
        )
    words = f"{units.share(share)} of its time is {group}"
    parts = {name: ns for name, ns in row.parts.items() if name in OVERHEAD_PARTS}
    if group == "overhead" and parts:
        words += f", mostly {OVERHEAD_PARTS[max(parts, key=lambda name: parts[name])]}"
    elif row.floor_ns and row.ns:
        words += f", at {units.share(min(1.0, row.floor_ns / row.ns))} of the roofline"
    return f"{words}."


def _is_small_part(one: Finding, row: LineRow) -> bool:
    """Whether all that the finding saves, at its lines together, is little beside this line."""
    return one.relative_to == "step" and one.saving_ns.expected < _SMALL_PART * row.ns


def _do(row: LineRow, findings: Sequence[Finding]) -> str:
    """The first finding about it, unless all save a small part at most; or why there is none."""
    about_line = [(n, one) for n, one in enumerate(findings, start=1) if row.where in one.where]
    of_most = [each for each in about_line if not _is_small_part(each[1], row)]
    for number, one in (of_most or about_line)[:1]:
        title = one.title or one.fault
        # "JAX compiles again" keeps its capitals.
        words = title if title[1:2].isupper() else f"{title[:1].lower()}{title[1:]}"
        if of_most:
            return f"Finding {number} is about it: {words}."
        return f"Finding {number} is about a small part of it: {words}."
    if row.floor_ns and row.floor_ns >= AT_ROOF.value * row.ns:
        return (
            "It runs near the roofline: only less work, a smaller dtype or a faster "
            "device would help."
        )
    return "boundby knows no fix for it."
