"""Lines that make the same calls many times, as a Python loop does.

Repeated layers, or many parameters, also make the same calls. In a loop, a line of one function
runs again and again within one call of that function, without calling another module each time. Its
operators are its own, or those of functions of the script that it calls.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from boundby.model import Cost, HostEvents, HostKind, Ints, Phase
from boundby.step.edit import Edit, HostTime
from boundby.step.frames import reads_of_values
from boundby.step.host_intervals import called_from
from boundby.step.model import StepView
from boundby.step.nesting import Mask
from boundby.step.op_record import OpRecord
from boundby.step.rows import python_ns, share_between, user_frames

# Fewer iterations are reported only on request, and never fewer than the second number.
_FEWEST, _LEAST = 8, 6
# Compiled code has one line of the script for all of its operators.
_COMPILED = ("<eval_with_key>", "Torch-Compiled Region", "CompiledFxGraph")
# In a recurrence, at least this share of a loop's iterations depend on the one before.
_CHAINED = 0.7
# Of what a recurrent cell is made, for which there are nn.LSTM, nn.GRU and nn.RNN.
_OF_CELLS = re.compile(
    r"::_?(mm|addmm|linear|sum|add|sub|rsub|mul|neg|cat|copy|clone"
    r"|(sigmoid|tanh|relu|threshold)(_backward)?|thnn_fused_(lstm|gru)_cell(_backward.*)?)_?$"
)
_MOST_CALLS = 4  # calls outward that a loop's rounds are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A line that runs for `rounds` iterations. `is_uniform`: its operators see the same shapes
    each time; `calls` are operators that are the same call in every iteration; `chained`: those of
    them that need the result of the iteration before. `lines`: where the operators are, the line
    with most of them first, if a function is called in each iteration. `spans`: start and end of
    the iterations. `is_rollout`: each iteration calls a model and reads a result, on which the next
    may depend."""

    line: str
    source: int
    lines: tuple[str, ...]
    rounds: int
    is_uniform: bool
    records: tuple[int, ...]
    calls: tuple[tuple[int, ...], ...]
    chained: tuple[tuple[int, ...], ...]
    spans: tuple[int, int]
    is_rollout: bool
    ns: float

    @property
    def apart(self) -> float:
        """The share of its works that need no result of another round."""
        return 1 - sum(map(len, self.chained)) / len(self.records)

    @property
    def is_recurrence(self) -> bool:
        """Whether hardly anything of it can be computed for all rounds together."""
        return self.apart < 1 - _CHAINED


class _Place(NamedTuple):
    """A line in one call of its function; `outward`: how many calls are between it and a work."""

    source: int
    frame: int
    outward: int


def looping_lines(step: StepView, fewest: int = _FEWEST) -> list[Loop]:
    """Loops of at least this many iterations."""
    return [loop for loop in step.memoised(_looping_lines) if loop.rounds >= fewest]


def _looping_lines(step: StepView) -> list[Loop]:
    """By line of one call of a function: its own operators, or those of a function of the user's
    that it calls in each round. The works of a loop inside another are the outer one's."""
    frames, host = step.memoised(user_frames), step.timeline.host
    layers, compiled = _layered(step, frames), step.within(*_COMPILED)
    called, models = step.memoised(_called_operators), _models(step)
    units: dict[_Place, dict[int, int]] = defaultdict(dict)
    for index, record in enumerate(step.op_records):
        if record.row < 0 or record.source < 0 or record.phase == Phase.OPTIMIZER:
            continue
        if step.is_for_data(record) or record.source in layers or compiled[record.row]:
            continue
        row = _forward_row(step, record)
        units[_Place(record.source, int(frames[row]), 0)][index] = int(called[index])
        for place, call in _callers(host, frames, int(frames[row]), int(models[row])):
            if place.source >= 0 and place.source not in layers:
                units[place][index] = call
    found: list[Loop] = []
    known: set[int] = set()
    for place in sorted(units, key=lambda place: -place.outward):
        rest = {index: unit for index, unit in units[place].items() if index not in known}
        loop = _loop_at(step, place, rest)
        if loop is not None and (loop.is_uniform or not place.outward):
            found.append(loop)
            known.update(loop.records)
    return _without_cells(step, found)


def _callers(
    host: HostEvents, frames: Ints, frame: int, model: int
) -> Iterator[tuple[_Place, int]]:
    """The lines that led to a call of a function, from the inside out, each with the call that it
    made. Not beyond a whole model: to call that many times is the script's way of training."""
    called = called_from(host)
    for outward in range(1, _MOST_CALLS + 1):
        if frame < 0:
            return
        parent = int(host.parent[frame])
        around = int(frames[parent]) if parent >= 0 else -1
        if model >= 0 and around < model:
            return
        yield _Place(int(called[frame]), around, outward), frame
        frame = around


def _loop_at(step: StepView, place: _Place, units: Mapping[int, int]) -> Loop | None:
    same: dict[tuple[object, ...], list[int]] = defaultdict(list)
    names: dict[tuple[int, str], set[int]] = defaultdict(set)
    for index, unit in units.items():
        record = step.op_records[index]
        call = step.call(record)
        shapes = tuple((t.shape, t.dtype) for t in call.tensors) if call else ()
        same[record.phase, record.name, shapes].append(index)
        names[record.phase, record.name].add(unit)
    rounds = max(map(len, names.values()), default=0)
    if rounds < _LEAST:
        return None
    each = min(rounds, _FEWEST)
    often = [
        tuple(group) for group in same.values() if len({units[index] for index in group}) >= each
    ]
    covered = sum(map(len, often))
    sources = Counter(step.timeline.sources[step.op_records[index].source] for index in units)
    ns = sum(step.op_records[index].ns for index in units)
    span = _span(step, units)
    return Loop(
        line=step.timeline.sources[place.source],
        source=place.source,
        lines=tuple(line for line, _ in sources.most_common()) if place.outward else (),
        rounds=rounds,
        is_uniform=covered >= 0.7 * len(units),
        records=tuple(units),
        calls=tuple(often),
        chained=tuple(_chained(step, often)),
        spans=span,
        is_rollout=_is_rollout(step, span, min(map(len, often), default=rounds)),
        ns=ns + _python(step, units),
    )


def _span(step: StepView, records: Iterable[int]) -> tuple[int, int]:
    """From the first work of the forward to the last; nothing where there is none."""
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
    """When whole models are called, and when values are read."""
    starts, models = step.timeline.host.start_ns, np.unique(_models(step))
    return np.sort(starts[models[models >= 0]]), np.sort(starts[reads_of_values(step)])


def in_rollouts(step: StepView) -> Mask:
    """Rows of the forward in loops that call a model and read a result in each round."""
    starts = step.timeline.host.start_ns
    found = np.zeros(len(starts), np.bool_)
    for loop in step.memoised(_looping_lines):
        if loop.is_rollout:
            # A round begins before its first operator, and ends after its last.
            round_ns = (loop.spans[1] - loop.spans[0]) // loop.rounds
            found |= (starts >= loop.spans[0] - round_ns) & (starts < loop.spans[1] + round_ns)
    return found


def _without_cells(step: StepView, loops: Sequence[Loop]) -> list[Loop]:
    """Recurrences of nothing but products and gates are not chained: there are operators for them.

    Lines of one body run in the same time.
    """
    found = []
    for loop in loops:
        first, last = loop.spans
        body = [one for one in loops if one.spans[0] < last and one.spans[1] > first]
        chained = [same for one in body or [loop] for same in one.chained]
        is_cell = any(_has_one_weight(step, same) for same in chained) and all(
            _OF_CELLS.search(step.op_records[same[0]].name) for same in chained
        )
        found.append(replace(loop, chained=()) if is_cell else loop)
    return found


def _has_one_weight(step: StepView, same: Sequence[int]) -> bool:
    """Products of a cell have the same weight each time, those of layers have not."""
    if step.op_records[same[0]].op_class != "contraction":
        return False
    calls = [step.call(step.op_records[index]) for index in same]
    storages = [{tensor.storage for tensor in call.tensors} for call in calls if call is not None]
    return bool(set.intersection(*storages) - {None}) if storages else False


def together(
    step: StepView,
    loops: Iterable[Loop],
    *,
    left: float,
    for_nothing: bool = False,
    one_pass: bool = False,
) -> Edit:
    """Each call made once for all iterations; a share of the gain is lost. What needs the result of
    the iteration before stays. `one_pass`: all calls of a line become one operator, which takes as
    long as the longest of them."""
    loops = list(loops)
    times: dict[int, float] = {}
    gone: list[int] = []
    for loop in loops:
        stay = {index for same in loop.chained for index in same}
        calls = loop.calls if loop.is_uniform else (loop.records,)
        if one_pass:
            calls = tuple(_by_name(step, loop))
        calls = tuple(same for same in calls if same[0] not in stay)
        at_once = [
            0.0 if for_nothing else min(_total_ns(step, same), _at_once_ns(step, same))
            for same in calls
        ]
        longest = max(at_once, default=0.0)
        for same, ns in zip(calls, at_once, strict=True):
            first, *others = same
            stays = ns * longest / sum(at_once) if one_pass and ns else ns
            times[first] = stays + left * (_total_ns(step, same) - stays)
            times.update(dict.fromkeys(others, 0.0))
            gone += others
    if step.device != "cpu":
        return Edit.set_time(times) + Edit.scale_launches(gone, left)
    saved = (1 - left) * _python_of_loops(step, loops)
    return Edit.set_time(times) + Edit.save_host(HostTime(after_ns=saved))


def _python_of_loops(step: StepView, loops: Sequence[Loop]) -> float:
    """What passes between the operators of loops: at their own lines, and at others of their bodies
    while they run."""
    python = {row.where: row.parts.get("python", 0.0) for row in step.line_rows}
    shares: dict[str, float] = defaultdict(float)
    for loop in loops:
        for line, part in share_between(step, *loop.spans).items():
            own = line == loop.line or line in loop.lines
            shares[line] = max(shares[line], loop.apart * (1.0 if own else part))
        for line in (loop.line, *loop.lines):
            shares[line] = max(shares[line], loop.apart)
    return step.cpu_contention * sum(
        python.get(line, 0.0) * share for line, share in shares.items()
    )


def _by_name(step: StepView, loop: Loop) -> Iterable[tuple[int, ...]]:
    same: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index in loop.records:
        same[step.op_records[index].phase, step.op_records[index].name].append(index)
    return map(tuple, same.values())


def _total_ns(step: StepView, same: Iterable[int]) -> float:
    return sum(step.op_records[index].ns for index in same)


def _at_once_ns(step: StepView, same: tuple[int, ...]) -> float:
    """The time of one call for all iterations, by the machine's curves; products that each need the
    result of the one before are unchanged."""
    if step.op_records[same[0]].op_class == "contraction" and _is_chain(step, same):
        return _total_ns(step, same)
    machine, costs = step.machine, [step.op_records[index].cost or Cost() for index in same]
    moved = machine.copy_ns(sum(cost.bytes for cost in costs)) or 0.0
    flops: dict[str, float] = defaultdict(float)
    for cost in costs:
        for unit, count in cost.flops.items():
            flops[unit] += count
    products = (machine.product_ns(unit, count) for unit, count in flops.items())
    return max(moved, *(ns or 0.0 for ns in products), 0.0)


def _chained(step: StepView, calls: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """The calls of a recurrence. What an operator consists of, and its backward, are as it is."""
    called = step.memoised(_called_operators)
    forward = (same for same in calls if step.op_records[same[0]].phase != Phase.BACKWARD)
    known = {called[index] for same in forward if _is_chain(step, same) for index in same}
    for same in calls:
        if sum(called[index] in known for index in same) > len(same) / 2:
            yield same


def _is_chain(step: StepView, same: tuple[int, ...]) -> bool:
    """Whether most of these operators depend on one another, as the steps of a recurrence do."""
    flow = step.flow
    if flow is None:
        return False
    at = step.memoised(_issued_at)
    wanted = set(same)
    first, last = min(at[index] for index in same), max(at[index] for index in same)
    depth: dict[int, int] = {}
    for index in flow.order[first : last + 1]:
        before = max((depth.get(maker, 0) for maker in flow.makers[index]), default=0)
        depth[index] = before + (index in wanted)
    return max(depth[index] for index in same) >= _CHAINED * len(same)


def _issued_at(step: StepView) -> dict[int, int]:
    flow = step.flow
    return {index: at for at, index in enumerate(flow.order)} if flow is not None else {}


def _called_operators(step: StepView) -> Ints:
    """For each work the operator that the script called, for one of the backward that of the
    forward: `aten::gru` runs its time steps itself."""
    host = step.timeline.host
    is_op = (host.kind == HostKind.OP).tolist()
    outermost = np.arange(len(host))
    for row, parent in enumerate(host.parent.tolist()):
        if parent >= 0 and is_op[parent]:
            outermost[row] = outermost[parent]
    return np.array([outermost[_forward_row(step, one)] for one in step.op_records], np.int64)


def _forward_row(step: StepView, record: OpRecord) -> int:
    forward = int(step.timeline.host.forward[record.row])
    return forward if record.phase == Phase.BACKWARD and forward >= 0 else record.row


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
        one.row for one in step.op_records if one.op_class == "contraction" and one.row >= 0
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
    """Lines that call another module each time: layers, one after the other. A time loop over a few
    modules calls each of them many times within one call of the function around it."""
    host, names = step.timeline.host, step.timeline.names
    called = called_from(host)
    modules: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    is_module = np.array([name.startswith("nn.Module: ") for name in names] or [False])
    for row in np.flatnonzero((host.kind == HostKind.PYTHON) & is_module[host.name]):
        if called[row] >= 0:
            modules[int(called[row])][int(host.name[row]), int(frames[row])] += 1
    return {
        source
        for source, seen in modules.items()
        if len({module for module, _ in seen}) >= 2 and max(seen.values()) <= 2
    }
