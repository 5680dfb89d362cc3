"""Kernels of a replayed graph against the operators of its capture: both are in the same order.

A dynamic program over the two: a kernel belongs to an operator that may have launched it, or to
none; an operator launches any number of kernels. The best of all orders is taken whole. Rows are
kept only around the best place so far, which moves on with the kernels.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from boundby.capture.torch.graph_replays.kernel_matching import (
    STRANGERS,
    follows,
    function_of,
    is_certain_to_launch,
    kinship,
    may_launch,
    may_repeat,
)
from boundby.capture.torch.graph_replays.recording import Operator

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]
Key = TypeVar("Key", bound=Hashable)

# How far behind and ahead of the best place others are kept: some layers of a model.
_BEHIND = 128
_AHEAD = 384
# What is lost where a kernel stays without an operator, an operator that must launch without a
# kernel, any other operator without one, and where an operator launches one more.
_LONELY = 1.5
_SILENT = 2.0
_PASSED = 0.25
_AGAIN = 0.75
_NEVER = np.float32(-1e9)


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each kernel the place of its operator, -1 for none.

    `fit` is the share of kernels that have one, `score` tells which of two recordings fits better.
    """

    operator: Rows
    fit: float
    score: float


def align(
    kernels: Sequence[str], operators: Sequence[Operator], *, loose: frozenset[str] = frozenset()
) -> Alignment:
    """`loose` kernels may stay alone: copies and fills, which say themselves what they do."""
    found = np.full(len(kernels), -1, np.int32)
    whole_names, kernel = _numbered(kernels)
    kernel_names = [function_of(name) for name in whole_names]
    candidates = _candidates(operators, kernel_names)
    places = _in_order(operators, candidates)
    if not len(kernels) or not len(places):
        return Alignment(found, 0.0, 0.0)
    variants, item = _numbered([candidates[place] for place in places.tolist()])
    likeness = np.array(
        [
            [kinship(name, one.name) if number in one.kernels else _NEVER for one in variants]
            for number, name in enumerate(kernel_names)
        ],
        np.float32,
    )
    lonely = np.array([0.0 if name in loose else _LONELY for name in whole_names], np.float32)
    # Column 0 stands for no operator yet.
    alike = np.full((len(kernel_names), len(item) + 1), _NEVER, np.float32)
    alike[:, 1:] = likeness[:, item]
    again = np.full_like(alike, -_NEVER)
    again[:, 1:] = np.array(
        [
            [_AGAIN if may_repeat(name, one.name) else -_NEVER for one in variants]
            for name in kernel_names
        ],
        np.float32,
    )[:, item]
    terms = _Terms(
        alike=alike,
        again=again,
        lonely=lonely,
        opens=[not follows(name) for name in kernel_names],
        losses=_losses(operators, places),
    )
    first, last, score = _best_paths(kernel, terms)
    for row in np.flatnonzero((first >= 0) & (last >= 0)).tolist():
        place = int(places[first[row]])
        # Where two orders are as good as each other, only what both say is known.
        if operators[place].call == operators[int(places[last[row]])].call:
            found[row] = place
    counted = lonely[kernel] > 0
    fit = int(np.count_nonzero((first >= 0) & counted)) / max(1, int(np.count_nonzero(counted)))
    return Alignment(found, fit, score)


class _Candidate(NamedTuple):
    """An operator's name, and the kernels that may be its own."""

    name: str
    kernels: frozenset[int]


def _numbered(keys: Sequence[Key]) -> tuple[list[Key], Rows]:
    number: dict[Key, int] = {}
    rows = np.array([number.setdefault(key, len(number)) for key in keys], np.int32)
    return list(number), rows


def _candidates(operators: Sequence[Operator], kernels: Sequence[str]) -> dict[int, _Candidate]:
    """By place the operators that could have launched any of the kernels.

    A kernel that one inside could have launched as well is not the outer one's.
    """
    kin = {
        name: frozenset(
            number for number, kernel in enumerate(kernels) if kinship(kernel, name) > STRANGERS
        )
        if may_launch(name)
        else frozenset()
        for name in {operator.name for operator in operators}
    }
    inside: dict[int, frozenset[int]] = {}
    found: dict[int, _Candidate] = {}
    for place in range(len(operators) - 1, -1, -1):
        operator = operators[place]
        handed_on = inside.get(place, frozenset())
        mine = kin[operator.name] - handed_on
        if mine:
            found[place] = _Candidate(operator.name, mine)
        if operator.parent >= 0 and (all_ := mine | handed_on):
            inside[operator.parent] = inside.get(operator.parent, frozenset()) | all_
    return found


def _in_order(operators: Sequence[Operator], candidates: Mapping[int, _Candidate]) -> Rows:
    """Their places. One that calls others stands twice: it may launch before and after them."""
    order: list[int] = []
    begun: list[int] = []
    calling: set[int] = set()

    def end() -> None:
        place = begun.pop()
        if place in calling:
            order.append(place)

    for place in sorted(candidates):
        while begun and not _is_around(operators, begun[-1], place):
            end()
        if begun:
            calling.add(begun[-1])
        begun.append(place)
        order.append(place)
    while begun:
        end()
    return np.array(order, np.int32)


def _is_around(operators: Sequence[Operator], outer: int, inner: int) -> bool:
    while inner > outer:
        inner = operators[inner].parent
    return inner == outer


def _losses(operators: Sequence[Operator], places: Rows) -> Floats:
    """What passing over each item loses; one that stands twice loses nothing."""
    _, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
    twice = counts[inverse] > 1
    certain = np.array([is_certain_to_launch(operators[place].name) for place in places.tolist()])
    return np.where(twice, 0.0, np.where(certain, _SILENT, _PASSED)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class _Step:
    """How one kernel was placed in each column, from `low` on; of which only one will matter."""

    low: int
    reach: Floats
    lead: Floats  # of coming from an earlier column over staying in this one
    takes: npt.NDArray[np.bool_]

    def previous(self, column: int, *, last: bool) -> int:
        """The column of the kernel before; of several as good, the first or the last."""
        here = column - self.low
        lead = self.lead[here]
        if not self.takes[here] or lead < 0 or (lead == 0 and last):
            return column
        before = self.reach[:here]
        return self.low + (here - 1 - int(before[::-1].argmax()) if last else int(before.argmax()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """What is won and lost, by kernel and column; and by kernel, or column, alone."""

    alike: Floats
    again: Floats
    lonely: Floats
    opens: Sequence[bool]
    losses: Floats


def _best_paths(kernel: Rows, terms: _Terms) -> tuple[Rows, Rows, float]:
    """For each kernel its item, -1 where it stays alone: the first and the last of the best orders.

    A kernel that does not open an operator's work continues that of the one before. `score[j]` is
    the best of all ways to have placed the kernels so far with column j the last one in use.
    """
    columns_in_all = terms.alike.shape[1]
    # What passing over all that comes before a column loses. All terms are quarters, so that equal
    # sums are equal.
    passed = np.concatenate(([0.0, 0.0], np.cumsum(terms.losses))).astype(np.float32)
    width = min(columns_in_all, _BEHIND + _AHEAD)
    score = np.full(width, _NEVER, np.float32)
    score[0] = 0.0
    low = 0
    steps: list[_Step] = []
    for name in kernel.tolist():
        moved = min(low + int(score.argmax()) - _BEHIND, columns_in_all - width) - low
        if moved > 0:
            score[:-moved], score[-moved:] = score[moved:].copy(), _NEVER
            low += moved
        # From any earlier column: what is between is passed over.
        reach = score + passed[low + 1 : low + 1 + width]
        top = np.maximum.accumulate(reach)
        fresh = np.full(width, _NEVER, np.float32)
        if terms.opens[name]:
            np.subtract(top[:-1], passed[low + 1 : low + width], out=fresh[1:])
        again = score - terms.again[name, low : low + width]
        placed = np.maximum(again, fresh) + terms.alike[name, low : low + width]
        alone = score - terms.lonely[name]
        steps.append(_Step(low, reach, fresh - again, placed > alone))
        score = np.maximum(placed, alone)
    # What comes after the last column in use is passed over too.
    total = score + passed[low + 1 : low + 1 + width]
    best = np.flatnonzero(total == total.max())
    return (
        _walk_back(low + int(best[0]), steps, last=False),
        _walk_back(low + int(best[-1]), steps, last=True),
        float(total[best[0]] - passed[-1]),
    )


def _walk_back(column: int, steps: Sequence[_Step], *, last: bool) -> Rows:
    chosen = np.full(len(steps), -1, np.int32)
    for row in range(len(steps) - 1, -1, -1):
        step = steps[row]
        if step.takes[column - step.low]:
            chosen[row] = column - 1
        column = step.previous(column, last=last)
    return chosen
