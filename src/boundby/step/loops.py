"""Lines that make the same calls many times, as a Python loop does.

Repeated layers, or many parameters, also make the same calls. In a loop, a line of one function
runs again and again within one call of that function, without calling another module each time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from boundby.model import Cost, HostKind, Phase
from boundby.step.edit import Edit, HostTime
from boundby.step.host_intervals import called_from
from boundby.step.model import StepView
from boundby.step.rows import python_ns

# Fewer iterations are reported only on request, and never fewer than the second number.
_FEWEST, _LEAST = 8, 6
# Compiled code has one line of the script for all of its operators.
_COMPILED = ("<eval_with_key>", "Torch-Compiled Region", "CompiledFxGraph")
# In a recurrence, at least this share of a loop's iterations depend on the one before.
_CHAINED = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A line that runs for `rounds` iterations. `is_uniform`: its operators see the same shapes
    each time; `calls` are operations that are the same call in every iteration."""

    line: str
    source: int
    rounds: int
    is_uniform: bool
    records: tuple[int, ...]
    calls: tuple[tuple[int, ...], ...]
    ns: float


def looping_lines(step: StepView, fewest: int = _FEWEST) -> list[Loop]:
    """Loops of at least this many iterations."""
    return [loop for loop in step.memoised(_looping_lines) if loop.rounds >= fewest]


def _looping_lines(step: StepView) -> list[Loop]:
    host, timeline = step.timeline.host, step.timeline
    frames = _frames(step)
    layers = _layered(step, frames)
    compiled = step.within(*_COMPILED)
    by_line: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, record in enumerate(step.op_records):
        if record.row < 0 or record.source < 0 or record.phase == Phase.OPTIMIZER:
            continue
        if step.is_for_data(record) or record.source in layers or compiled[record.row]:
            continue
        row = record.row
        if record.phase == Phase.BACKWARD and host.forward[row] >= 0:
            row = int(host.forward[row])
        by_line[record.source, int(frames[row])].append(index)
    found = []
    for (source, _), records in by_line.items():
        same: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for index in records:
            record = step.op_records[index]
            call = step.call(record)
            shapes = tuple((t.shape, t.dtype) for t in call.tensors) if call else ()
            same[record.phase, record.name, shapes].append(index)
        names = Counter(
            (step.op_records[index].phase, step.op_records[index].name) for index in records
        )
        rounds = max(names.values())
        if rounds < _LEAST:
            continue
        each = min(rounds, _FEWEST)
        often = [tuple(group) for group in same.values() if len(group) >= each]
        covered = sum(len(group) for group in often)
        ns = sum(step.op_records[index].ns for index in records)
        found.append(
            Loop(
                line=timeline.sources[source],
                source=source,
                rounds=rounds,
                is_uniform=covered >= 0.7 * len(records),
                records=tuple(records),
                calls=tuple(often),
                ns=ns + _python(step, records),
            )
        )
    return found


def together(
    step: StepView,
    loops: Iterable[Loop],
    *,
    left: float,
    for_nothing: bool = False,
    one_pass: bool = False,
) -> Edit:
    """Each call made once for all iterations; a share of the gain is lost. `one_pass`: all calls of
    a line become one operator, which takes as long as the longest of them."""
    times: dict[int, float] = {}
    gone: list[int] = []
    for loop in loops:
        calls = loop.calls if loop.is_uniform else (loop.records,)
        if one_pass:
            calls = tuple(_by_name(step, loop))
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
    lines = {loop.line for loop in loops}
    python = sum(row.parts.get("python", 0.0) for row in step.line_rows if row.where in lines)
    saved = step.cpu_contention * python * (1 - left)
    return Edit.set_time(times) + Edit.save_host(HostTime(after_ns=saved))


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


def _is_chain(step: StepView, same: tuple[int, ...]) -> bool:
    """Whether most of these operators depend on one another, as the steps of a recurrence do."""
    flow = step.flow
    if flow is None:
        return False
    wanted = set(same)
    depth: dict[int, int] = {}
    for index in flow.order:
        before = max((depth.get(maker, 0) for maker in flow.makers[index]), default=0)
        depth[index] = before + (index in wanted)
    return max(depth[index] for index in same) >= _CHAINED * len(same)


def _python(step: StepView, records: Iterable[int]) -> float:
    if step.device != "cpu":
        return 0.0
    rows = np.zeros(len(step.timeline.host), np.bool_)
    rows[[step.op_records[index].row for index in records]] = True
    return python_ns(step, rows)


def _frames(step: StepView) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each row the call of the user's Python function that contains it, by its line."""
    host = step.timeline.host
    found = np.full(len(host), -1, np.int64)
    own = np.zeros(len(host), np.bool_)
    called = called_from(host)
    python = host.kind == HostKind.PYTHON
    # A function of the user's has its own line as its source, and its caller's beside it.
    own[python] = (host.source[python] >= 0) & (host.source[python] != called[python])
    for row, parent in enumerate(host.parent.tolist()):
        if own[row]:
            found[row] = row
        elif parent >= 0:
            found[row] = found[parent]
    return found


def _layered(step: StepView, frames: np.ndarray[tuple[int], np.dtype[np.int64]]) -> set[int]:
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
