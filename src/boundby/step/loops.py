"""Lines that make the same calls many times, as a Python loop does.

Repeated layers, or many parameters, also make the same calls. In a loop, a line runs repeatedly
within one call of its function, without calling another module each time. Its operators are its own
and those of user functions that it calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from boundby.model import HostEvents, HostKind, Ints, Phase
from boundby.step.frames import reads_of_values
from boundby.step.host_intervals import called_from
from boundby.step.loop import Loop
from boundby.step.model import StepView
from boundby.step.nesting import nearest
from boundby.step.recurrences import (
    called_operators,
    chained_calls,
    forward_row,
    is_chain,
    without_cells,
)
from boundby.step.rows import of_the_script, python_ns, user_frames

# Fewer iterations are reported only on request, and never fewer than the second number.
_FEWEST, _LEAST = 8, 6
# A loop is uniform if this share of its operators is the same call in every iteration, if on
# tensors of other sizes.
_UNIFORM = 0.7
# Compiled code has one line of the script for all of its operators.
_COMPILED = ("<eval_with_key>", "Torch-Compiled Region", "CompiledFxGraph")
# A loop is looked for at this many calls around an operator.
_MOST_CALLS = 4


class _Place(NamedTuple):
    """A line in one call of its function; `outward`: the number of calls between it and an
    operator."""

    source: int
    frame: int
    outward: int


def looping_lines(step: StepView, fewest: int = _FEWEST) -> list[Loop]:
    """Loops of at least this many iterations."""
    return [loop for loop in step.memoised(_looping_lines) if loop.rounds >= fewest]


def _looping_lines(step: StepView) -> list[Loop]:
    """Loops by line of one call of a function: its own operators, or those of a user function that
    it calls in each iteration. Operators of nested loops belong to the outer loop."""
    frames, host = step.memoised(user_frames), step.timeline.host
    if not (host.kind == HostKind.PYTHON).any():
        return []  # without calls of functions, the layers of a model look like a loop
    layers, compiled = _layered(step, frames), step.within(*_COMPILED)
    called, models = step.memoised(_calls_of_the_script), _models(step)
    lines = called_from(host).astype(np.int64)
    single = step.evidence.single_samples
    singly = {
        at for at, line in enumerate(step.timeline.sources) if single and line in single.where
    }
    units: dict[_Place, dict[int, int]] = defaultdict(dict)
    for index, record in enumerate(step.op_records):
        if record.row < 0 or record.source < 0 or record.phase == Phase.OPTIMIZER:
            continue
        if step.is_for_data(record) or record.source in layers or compiled[record.row]:
            continue
        row = forward_row(step, record)
        units[_Place(record.source, int(frames[row]), 0)][index] = int(called[index])
        for place, call in _callers(
            host, lines, frames, int(frames[row]), int(models[row]), singly
        ):
            if place.source >= 0 and place.source not in layers:
                units[place][index] = call
    loops: list[Loop] = []
    assigned: set[int] = set()
    for place in sorted(units, key=lambda place: -place.outward):
        rest = {index: unit for index, unit in units[place].items() if index not in assigned}
        loop = _loop_at(step, place, rest)
        if loop is not None and (loop.is_uniform or not place.outward):
            loops.append(loop)
            # What a rollout does between the calls of the model may be a loop as well.
            assigned.update(() if loop.is_rollout else loop.records)
    return without_cells(step, loops)


def _callers(
    host: HostEvents, lines: Ints, frames: Ints, frame: int, model: int, singly: Container[int]
) -> Iterator[tuple[_Place, int]]:
    """The lines that led to a call of a function, innermost first, each with the call that it made.

    Lines outside of a whole model are left out, except those that call it on one sample after the
    other (`singly`): calling a model many times is training.
    """
    for outward in range(1, _MOST_CALLS + 1):
        if frame < 0:
            return
        parent = int(host.parent[frame])
        around = int(frames[parent]) if parent >= 0 else -1
        if model >= 0 and around < model and int(lines[frame]) not in singly:
            return
        yield _Place(int(lines[frame]), around, outward), frame
        frame = around


def _loop_at(step: StepView, place: _Place, units: Mapping[int, int]) -> Loop | None:
    names: dict[tuple[int, str], set[int]] = defaultdict(set)
    for index, unit in units.items():
        record = step.op_records[index]
        names[record.phase, record.name].add(unit)
    rounds = max(map(len, names.values()), default=0)
    if rounds < _LEAST:
        return None
    repeated, covered = _repeated(step, units, min(rounds, _FEWEST), sized=True)
    if covered < _UNIFORM * len(units):
        # Graphs, sentences or histories of different sizes.
        repeated, covered = _repeated(step, units, min(rounds, _FEWEST), sized=False)
    sources = Counter(step.timeline.sources[step.op_records[index].source] for index in units)
    ns = sum(step.op_records[index].ns for index in units)
    span = _span(step, units)
    return Loop(
        line=step.timeline.sources[place.source],
        source=place.source,
        lines=tuple(line for line, _ in sources.most_common()) if place.outward else (),
        rounds=rounds,
        is_uniform=covered >= _UNIFORM * len(units),
        records=tuple(units),
        calls=tuple(repeated),
        chained=tuple(chained_calls(step, repeated)),
        spans=span,
        is_rollout=_is_rollout(step, span, min(map(len, repeated), default=rounds)),
        ns=ns + _python(step, units),
    )


def _repeated(
    step: StepView, units: Mapping[int, int], each: int, *, sized: bool
) -> tuple[list[tuple[int, ...]], int]:
    """The operators that at least so many iterations call on tensors of the same shapes (if not
    `sized`, of the same numbers of dimensions), and how many these are."""
    same: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index in units:
        record = step.op_records[index]
        call = step.call(record)
        tensors = call.tensors if call else ()
        shapes = tuple((t.shape if sized else len(t.shape), t.dtype) for t in tensors)
        same[record.phase, record.name, shapes].append(index)
    often = [
        tuple(group) for group in same.values() if len({units[index] for index in group}) >= each
    ]
    return often, sum(map(len, often))


def _span(step: StepView, records: Iterable[int]) -> tuple[int, int]:
    """Start of the first and end of the last operator of the forward; zeros without one."""
    host = step.timeline.host
    rows = [
        record.row
        for record in (step.op_records[index] for index in records)
        if record.phase != Phase.BACKWARD
    ]
    if not rows:
        return 0, 0
    ends = host.start_ns[rows] + host.duration_ns[rows]
    return int(host.start_ns[rows].min()), int(ends.max())


def _is_rollout(step: StepView, span: tuple[int, int], rounds: int) -> bool:
    calls, reads = step.memoised(_calls_and_reads)
    first, last = span
    return all(
        np.searchsorted(starts, last) - np.searchsorted(starts, first) >= rounds // 2
        for starts in (calls, reads)
    )


def _calls_and_reads(step: StepView) -> tuple[Ints, Ints]:
    """The times at which whole models are called and values are read."""
    starts, models = step.timeline.host.start_ns, np.unique(_models(step))
    return np.sort(starts[models[models >= 0]]), np.sort(starts[reads_of_values(step)])


def rollout_rounds(step: StepView) -> Ints:
    """For each row of the forward the iterations of the loop around it that calls a model and
    reads a result in each; zero outside of such loops."""
    starts = step.timeline.host.start_ns
    found = np.zeros(len(starts), np.int64)
    for loop in step.memoised(_looping_lines):
        if loop.is_rollout:
            # An iteration begins before its first operator, and ends after its last.
            round_ns = (loop.spans[1] - loop.spans[0]) // loop.rounds
            inside = (starts >= loop.spans[0] - round_ns) & (starts < loop.spans[1] + round_ns)
            found[inside] = np.maximum(found[inside], loop.rounds)
    return found


def _calls_of_the_script(step: StepView) -> Ints:
    """For each operator the call that the script's own line made.

    What a function of a library does in one such call, its loops included, is one call. Without
    such a function, it is the operator. A comprehension is a function of the script's.
    """
    frames, host = step.memoised(user_frames), step.timeline.host
    own = step.memoised(of_the_script)
    outermost = np.arange(len(host))
    for row, parent in enumerate(host.parent.tolist()):
        if parent >= 0 and not own[parent] and frames[row] not in (-1, row, parent):
            outermost[row] = outermost[parent]
    operators = step.memoised(called_operators)
    return np.where(frames[operators] >= 0, outermost[operators], operators)


def _models(step: StepView) -> Ints:
    """For each row the outermost module around it that runs products; -1 for none."""
    host, names = step.timeline.host, step.timeline.names
    named = np.array([name.startswith("nn.Module: ") for name in names] or [False])
    modules = (host.kind == HostKind.PYTHON) & named[host.name]
    around = np.full(len(host), -1, np.int64)
    for row, parent in enumerate(host.parent.tolist()):
        outer = around[parent] if parent >= 0 else -1
        around[row] = outer if outer >= 0 or not modules[row] else row
    products = [
        record.row
        for record in step.op_records
        if record.op_class == "contraction" and record.row >= 0
    ]
    with_products = np.zeros(len(host) + 1, np.bool_)
    with_products[around[products]] = True
    with_products[-1] = False
    return np.where(with_products[around], around, -1)


def _python(step: StepView, records: Iterable[int]) -> float:
    if step.device != "cpu":
        return 0.0
    rows = np.zeros(len(step.timeline.host), np.bool_)
    rows[[step.op_records[index].row for index in records]] = True
    return python_ns(step, rows)


def _layered(step: StepView, frames: Ints) -> set[int]:
    """Lines that call another module each time: consecutive layers. A time loop over a few modules
    calls each of them many times within one call of the function around it; heads or branches in a
    list need no result of one another."""
    host, names = step.timeline.host, step.timeline.names
    called = called_from(host)
    modules: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    named = np.array([name.startswith("nn.Module: ") for name in names] or [False])
    is_module = (host.kind == HostKind.PYTHON) & named[host.name]
    rows: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(is_module):
        if called[row] >= 0:
            modules[int(called[row])][int(host.name[row]), int(frames[row])] += 1
            rows[int(called[row])].append(int(row))
    return {
        source
        for source, calls in modules.items()
        if len({module for module, _ in calls}) >= 2 and max(calls.values()) <= 2
        if not _are_branches(step, rows[source])
    }


def _are_branches(step: StepView, modules: list[int]) -> bool:
    """Whether most of many modules need no result of another one of them."""
    host = step.timeline.host
    around = _around(step, modules)
    outermost = [row for row in modules if host.parent[row] < 0 or around[host.parent[row]] < 0]
    if len(outermost) < _FEWEST or step.flow is None:
        return False
    around = _around(step, outermost)
    # The last operator of a layer needs the layer before, whatever its first ones do.
    last = {
        int(around[record.row]): index
        for index, record in enumerate(step.op_records)
        if record.row >= 0 and record.phase != Phase.BACKWARD and around[record.row] >= 0
    }
    return len(last) >= _FEWEST and not is_chain(step, tuple(last.values()))


def _around(step: StepView, rows: list[int]) -> Ints:
    """For each row the innermost of some rows that it is in; -1 for none."""
    wanted = np.zeros(len(step.timeline.host), np.bool_)
    wanted[rows] = True
    return nearest(step.timeline.host.parent, wanted)
