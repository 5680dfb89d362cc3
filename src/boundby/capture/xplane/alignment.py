"""Which instruction each kernel of a command buffer executes.

Inside a command buffer the profiler names the buffer, not the instruction, and a kernel has the
name of the first of all identical fusions. The order is known: a program's kernels run in the order
of its schedule. Kernels and instructions are aligned in order, by their names without numbers;
instructions of library calls run one to five kernels with names unlike those of fusions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.capture.xplane.hlo import Computation, Module, Node

_NUMBERS = re.compile(r"(?:[._]\d+)+$")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_SILENT = frozenset(
    [
        "parameter",
        "constant",
        "bitcast",
        "tuple",
        "get-tuple-element",
        "after-all",
        "partition-id",
        "replica-id",
        "optimization-barrier",
        "add-dependency",
    ]
)
_COPY_KERNELS = re.compile(r"^(?:memcpy|loop_copy|copy|wrapped_copy)", re.IGNORECASE)
_MOVING = _SILENT | {"copy", "slice", "dynamic-slice", "dynamic-update-slice", "reshape"}
# Instructions that compute the position of a slice.
_INDEXING = frozenset({"add", "subtract", "compare", "select", "convert", "clamp", "multiply"})
_MOST_CELLS = 6_000_000  # memory limit: cells of the table
# Scores: a match outweighs any skip, and skipping a kernel costs more than skipping a node.
_MATCH, _MORE, _SKIP_KERNEL, _SKIP_NODE = 1.0, 0.3, -0.6, -0.1
_DEEPEST = 8  # time limit


class Expected(NamedTuple):
    """An instruction that runs at least one kernel."""

    node: Node
    base: str
    library: bool
    copies: bool  # only moves data, possibly with the runtime's own copy


def base_name(name: str) -> str:
    """A name without its numbers, which kernels and instructions share."""
    name = name.removesuffix(".kd")
    return _UNSAFE.sub("_", _NUMBERS.sub("", _NUMBERS.sub("", name)))


def schedule(module: Module) -> list[Expected]:
    """The instructions that run kernels, in order; those of a loop's body once."""
    found: list[Expected] = []
    _walk(module, module.entry, found, 0)
    return found


def _walk(module: Module, computation: Computation, found: list[Expected], depth: int) -> None:
    for node in computation.scheduled():
        if node.opcode in _SILENT or node.opcode.endswith(("-done", "-update")):
            continue
        inner = module.called_by(node)
        if node.opcode in ("while", "conditional", "call", "async-start") and inner:
            if depth < _DEEPEST:
                for one in inner:
                    _walk(module, one, found, depth + 1)
            continue
        if node.opcode == "fusion" or node.opcode in _OWN_KERNELS:
            library = node.opcode in _LIBRARY
            found.append(Expected(node, base_name(node.name), library, _copies(module, node)))


def _copies(module: Module, node: Node) -> bool:
    if node.opcode.startswith("copy"):
        return True
    inside = {inner.opcode for one in module.called_by(node) for inner in one.nodes}
    moving = _MOVING | _INDEXING
    return node.opcode == "fusion" and inside <= moving and bool(inside & (_MOVING - _SILENT))


_LIBRARY = frozenset(
    [
        "custom-call",
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "collective-permute",
        "all-reduce-start",
        "all-gather-start",
        "collective-permute-start",
        "sort",
        "fft",
        "convolution",
        "dot",
        "triangular-solve",
        "cholesky",
        "rng-bit-generator",
        "topk",
    ]
)
_OWN_KERNELS = _LIBRARY | {"copy", "copy-start", "scatter", "select-and-scatter", "reduce-window"}


def align(
    kernels: Sequence[str], known: Sequence[Node | None], expected: Sequence[Expected]
) -> list[int]:
    """For each kernel the position of its instruction among the expected ones; -1 for none.

    `known` has the instructions that the profiler named, which fix the alignment around them.
    """
    fused = {one.base for one in expected if not one.library}
    bases = [base_name(name) for name in kernels]
    result = [-1] * len(kernels)
    position: dict[int, list[int]] = {}
    for at, one in enumerate(expected):
        position.setdefault(one.node.id, []).append(at)
    edges = [(-1, -1)]
    for index, node in enumerate(known):
        if node is None:
            continue
        found = next((p for p in position.get(node.id, ()) if p >= edges[-1][1]), None)
        if found is not None:
            result[index] = found
            edges.append((index, found))
    edges.append((len(kernels), len(expected)))
    for (first, after), (last, before) in pairwise(edges):
        rows = range(first + 1, last)
        if rows and before > after + 1:
            spans = expected[after + 1 : before]
            aligned = _align_between([bases[row] for row in rows], spans, fused)
            for row, at in zip(rows, aligned, strict=True):
                result[row] = at + after + 1 if at >= 0 else -1
    return result


def _align_between(bases: list[str], expected: Sequence[Expected], fused: set[str]) -> list[int]:
    if len(bases) == len(expected) and all(
        _fits(base, one, fused) for base, one in zip(bases, expected, strict=True)
    ):
        return list(range(len(bases)))
    if len(bases) * len(expected) > _MOST_CELLS:
        return _forward(bases, expected, fused)
    return _best(bases, expected, fused)


def _fits(base: str, one: Expected, fused: set[str]) -> bool:
    if base == one.base:
        return True
    if one.library:
        return base not in fused
    return one.copies and _COPY_KERNELS.match(base) is not None


def _forward(bases: list[str], expected: Sequence[Expected], fused: set[str]) -> list[int]:
    """For programs that are too long: without backtracking, each kernel takes the next instruction
    that fits."""
    found, at = [], 0
    for base in bases:
        reach = range(at, min(at + 64, len(expected)))
        hit = next((index for index in reach if _fits(base, expected[index], fused)), None)
        if hit is None:
            more = at > 0 and expected[at - 1].library and base not in fused
            found.append(at - 1 if more else -1)
            continue
        found.append(hit)
        at = hit + 1
    return found


def _best(bases: list[str], expected: Sequence[Expected], fused: set[str]) -> list[int]:
    """The alignment with the best score, by dynamic programming."""
    rows, columns = len(bases), len(expected)
    # score[i][j]: the first i kernels on the first j instructions; `held` with the last kernel on
    # instruction j, which a library call may continue from.
    score = np.arange(columns + 1) * _SKIP_NODE
    held = np.full(columns + 1, -np.inf)
    moves = np.zeros((rows + 1, columns + 1), np.int8)
    moves[0, 1:] = 2
    holds = np.zeros((rows + 1, columns + 1), np.bool_)  # whether it was held before
    library = np.array([False, *(one.library for one in expected)])
    fits_of: dict[str, npt.NDArray[np.bool_]] = {}
    penalty = np.arange(columns + 1) * _SKIP_NODE
    for row, base in enumerate(bases, 1):
        fits = fits_of.get(base)
        if fits is None:
            fits = fits_of[base] = np.array([_fits(base, one, fused) for one in expected], np.bool_)
        start = np.full(columns + 1, -np.inf)
        start[1:] = np.where(fits, score[:-1] + _MATCH, -np.inf)
        more = np.where(library & np.append(False, fits), held + _MORE, -np.inf)
        holds[row] = more > start
        held = np.maximum(start, more)
        stay = score + _SKIP_KERNEL
        best = np.maximum(held, stay)
        # Instructions without a kernel: the best of all before, minus the cost of skipping them.
        leveled = best - penalty
        running = np.maximum.accumulate(leveled)
        skipped = running > leveled
        moves[row] = np.where(skipped, 2, np.where(held >= stay, 1, 3))
        score = running + penalty
    return _trace_back(moves, holds, rows, columns)


def _trace_back(
    moves: npt.NDArray[np.int8], holds: npt.NDArray[np.bool_], rows: int, columns: int
) -> list[int]:
    found = [-1] * rows
    row, column = rows, columns
    while row > 0:
        move = moves[row, column]
        if move == 2:
            column -= 1
            continue
        if move == 3:
            row -= 1
            continue
        while True:  # the kernels of this instruction
            found[row - 1] = column - 1
            again = holds[row, column]
            row -= 1
            if not again or row == 0:
                break
        column -= 1
    return found
