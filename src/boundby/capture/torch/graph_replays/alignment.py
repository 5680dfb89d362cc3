"""Aligns the kernels of a replayed graph with the operators of its capture: both are in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.capture.torch.graph_replays.kernel_classes import (
    follows,
    kernel_class,
    may_repeat,
    names,
    operator_class,
)
from boundby.capture.torch.graph_replays.recording import Operator

Rows = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

# The score of a kernel with an operator of its class: more if the operator is in its name or is
# known to launch it, less if the operator has a kernel already. Definitions: only their order
# matters.
_SAME_CLASS, _NAMED, _LAUNCHED, _AGAIN = 1.0, 0.5, 1.0, -0.75
_NEVER = np.float32(-1e9)  # below every score
# More cells than this (about 15,000 kernels by as many operators) are not aligned: memory.
_MOST_CELLS = 1 << 28


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each kernel the index of its operator, -1 for none; `fit`: the share that has one."""

    operator: Rows
    fit: float


def align(
    kernels: Sequence[str],
    operators: Sequence[Operator],
    *,
    optional: frozenset[str] = frozenset(),
    grids: Sequence[int] = (),
) -> Alignment:
    """The assignment of kernels to operators, in order, that fits most kernels.

    If the first and the last of equally good alignments name different calls, none is given.
    `optional` kernels, copies and fills, do not count for the fit. Operators whose own kernels are
    known fit these best, on the same one of the `grids`.
    """
    found = np.full(len(kernels), -1, np.int32)
    places = _launching(operators)
    rows = [row for row, name in enumerate(kernels) if not follows(name)]
    if not rows or not places or len(rows) * len(places) > _MOST_CELLS:
        return Alignment(found, 0.0)
    distinct: dict[tuple[str, int], int] = {}
    launches = [(kernels[row], grids[row] if grids else 0) for row in rows]
    number = np.array([distinct.setdefault(launch, len(distinct)) for launch in launches], np.int64)
    scores = _scores(list(distinct), [operators[place] for place in places])
    repeats = [may_repeat(kernel_class(name)) for name, _ in distinct]
    changes = [may_repeat(kernel_class(name), another_kernel=True) for name, _ in distinct]
    again = np.where([repeats, changes], _AGAIN, _NEVER)
    first = _best_path(number, scores, again)
    last = len(places) - 1 - _best_path(number[::-1], scores[:, ::-1], again)[::-1]
    last[last == len(places)] = -1
    for row, one, other in zip(rows, first.tolist(), last.tolist(), strict=True):
        if min(one, other) >= 0 and operators[places[one]].call == operators[places[other]].call:
            found[row] = places[one]
    for row, name in enumerate(kernels):
        if row and follows(name):
            found[row] = found[row - 1]
    counted = [row for row, name in enumerate(kernels) if name not in optional]
    fitted = np.zeros(len(kernels), np.bool_)
    fitted[rows] = first >= 0
    return Alignment(found, float(fitted[counted].mean()) if counted else 0.0)


def _launching(operators: Sequence[Operator]) -> list[int]:
    """The operators that launch kernels, by index, in the order in which they end.

    Of nested operators of one class only the innermost launches.
    """
    inside: list[set[str]] = [set() for _ in operators]
    ends = list(range(len(operators)))
    launching = []
    for place in range(len(operators) - 1, -1, -1):
        operator = operators[place]
        mine = operator_class(operator.name)
        if mine is not None and mine not in inside[place]:
            launching.append(place)
            inside[place].add(mine)
        if operator.parent >= 0:
            inside[operator.parent] |= inside[place]
            ends[operator.parent] = max(ends[operator.parent], ends[place])
    # Of those that end together, the outermost, which began first, ends last.
    return sorted(launching, key=lambda place: (ends[place], -place))


def _scores(kernels: Sequence[tuple[str, int]], operators: Sequence[Operator]) -> Floats:
    """How well each kernel fits each operator; far below zero if it does not."""
    columns: dict[tuple[str, frozenset[tuple[str, int]]], int] = {}
    for one in operators:
        columns.setdefault((one.name, one.kernels), len(columns))
    table = np.full((len(kernels), len(columns)), _NEVER, np.float32)
    for row, kernel in enumerate(kernels):
        for (name, launched), column in columns.items():
            if operator_class(name) == kernel_class(kernel[0]):
                table[row, column] = _SAME_CLASS + _NAMED * names(kernel[0], name)
                table[row, column] += _LAUNCHED * (kernel in launched)
    return table[:, [columns[one.name, one.kernels] for one in operators]]


def _best_path(kernel: npt.NDArray[np.int64], scores: Floats, again: Floats) -> Rows:
    """For each kernel its column, -1 for none: the in-order alignment with the highest score.

    `best[j]` is the score of the kernels so far on columns up to j, `here[j]` with the last one
    on j. `again` is what a further kernel of one operator scores: the same kernel, or another.
    """
    columns = scores.shape[1]
    best = np.zeros(columns + 1, np.float32)
    here = np.full(columns + 1, _NEVER, np.float32)
    takes, repeats, from_left = (np.empty((len(kernel), columns + 1), np.bool_) for _ in range(3))
    for row, number in enumerate(kernel.tolist()):
        score = np.concatenate(([_NEVER], scores[number]))
        fresh = np.concatenate(([_NEVER], best[:-1])) + score
        another = int(row > 0 and number != kernel[row - 1])
        repeated = here + score + again[another, number]
        here = np.maximum(fresh, repeated)
        takes[row], repeats[row] = here > best, repeated > fresh
        at_column = np.maximum(best, here)
        best = np.maximum.accumulate(at_column)
        from_left[row] = best > at_column
    chosen = np.full(len(kernel), -1, np.int32)
    column, is_repeated = columns, False
    for row in range(len(kernel) - 1, -1, -1):
        while not is_repeated and from_left[row, column]:
            column -= 1
        if not (is_repeated or takes[row, column]):
            continue
        chosen[row] = column - 1
        is_repeated = bool(repeats[row, column])
        if not is_repeated:
            column -= 1
    return chosen
