"""Differences along trees: modules with all that they contain, and lines by the lines that call
them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from boundby.model.comparison import Difference
from boundby.model.rows import LineRow

_NUMBER = re.compile(r"_\d+$")
_UNKNOWN = "unknown"
Path = tuple[str, ...]


def module_differences(before: Sequence[LineRow], after: Sequence[LineRow]) -> list[Difference]:
    """The changes by kind of module, each followed by those of the modules in it, the largest
    first.

    The layers of a stack are one kind: `Encoder > Layer`, not `Layer_0` to `Layer_11`. A module has
    the time of all that it contains.
    """
    totals = _totals(before), _totals(after)
    inside: dict[Path, list[Path]] = {}
    for path in dict.fromkeys([*totals[0], *totals[1]]):
        inside.setdefault(path[:-1], []).append(path)

    def delta(path: Path) -> float:
        return totals[1].get(path, 0.0) - totals[0].get(path, 0.0)

    def below(path: Path) -> Iterator[Difference]:
        for child in sorted(inside.get(path, ()), key=lambda one: -abs(delta(one))):
            yield _difference(child[-1], child, totals, depth=len(child) - 1)
            yield from below(child)

    return list(below(()))


def call_path_differences(before: Sequence[LineRow], after: Sequence[LineRow]) -> list[Difference]:
    """The changes by line and by the line that called its function, where several did."""
    times = _by_caller(before), _by_caller(after)
    return [
        _difference(" > ".join(path), path, times) for path in dict.fromkeys([*times[0], *times[1]])
    ]


def _difference(
    name: str, path: Path, times: tuple[Mapping[Path, float], Mapping[Path, float]], depth: int = 0
) -> Difference:
    before_ns, after_ns = (side.get(path) for side in times)
    return Difference(
        name=name,
        depth=depth,
        before_ns=before_ns,
        after_ns=after_ns,
        delta_ns=(after_ns or 0.0) - (before_ns or 0.0),
    )


def _totals(rows: Sequence[LineRow]) -> dict[Path, float]:
    """The time of each kind of module, with that of the modules in it."""
    totals: dict[Path, float] = {}
    for row in rows:
        if row.where == _UNKNOWN:
            continue
        path = tuple(_NUMBER.sub("", part) for part in row.where.split("."))
        for length in range(1, len(path) + 1):
            totals[path[:length]] = totals.get(path[:length], 0.0) + row.ns
    return totals


def _by_caller(rows: Sequence[LineRow]) -> dict[Path, float]:
    times: dict[Path, float] = {}
    for row in rows:
        for caller in row.callers:
            path = (caller.where, row.where)
            times[path] = times.get(path, 0.0) + caller.ns
    return times
