"""What the process that trains does to make a batch: the samples' own functions, and the operators
that they call."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from boundby.model import HostEvents, HostKind
from boundby.model.assumptions.host import LONG_PYTHON_OPERATORS, OPERATOR_NS
from boundby.step.loop_savings import at_once_ns, total_ns
from boundby.step.model import StepView
from boundby.step.nesting import Mask
from boundby.step.rows import of_the_script

_LOOP = 16  # a function called this often by another is called in a loop
_FEWEST = 8  # an operator called this often in a batch is called for each sample


def operators_of_batches(step: StepView) -> list[int]:
    """On a CPU, the operators of a loader without workers; on a device step, they are host time."""
    if step.device != "cpu":
        return []
    return [index for index, record in enumerate(step.op_records) if step.is_for_data(record)]


def at_once(step: StepView, operators: list[int]) -> dict[int, float]:
    """The times of these operators if those that are called for each sample are called once."""
    same: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index in operators:
        record = step.op_records[index]
        call = step.call(record)
        tensors = call.tensors if call else ()
        kind = tuple((len(tensor.shape), tensor.dtype) for tensor in tensors)
        same[record.source, record.name, kind].append(index)
    times: dict[int, float] = {}
    for group in same.values():
        if len(group) < _FEWEST:
            continue
        first, *others = group
        times[first] = min(total_ns(step, group), at_once_ns(step, tuple(group)))
        times.update(dict.fromkeys(others, 0.0))
    return times


def interpreted(step: StepView) -> Mask:
    """Python functions of the script, and what they call repeatedly, in one call or in one each of
    many, that an operator on all values at once replaces: short C functions, and operators with the
    functions around them."""
    host = step.timeline.host
    of_script = step.memoised(of_the_script)
    is_python = host.kind == HostKind.PYTHON
    called_by_script = is_python & ~of_script & (host.parent >= 0) & of_script[host.parent]
    called = np.flatnonzero(called_by_script)
    calls = np.stack([host.name[host.parent], host.name], axis=1)[called]
    _, member, counts = np.unique(calls, axis=0, return_inverse=True, return_counts=True)
    member = member.ravel()
    longest = LONG_PYTHON_OPERATORS.value * (
        step.machine.overheads.eager_op_ns or OPERATOR_NS.value
    )
    # A long one, as decoding an image, remains whatever calls it.
    short = np.zeros(len(called), np.bool_)
    for group in np.unique(member[counts[member] >= _LOOP]):
        of_group = member == group
        short[of_group] = np.median(host.duration_ns[called[of_group]]) < longest
    is_interpreted = of_script.copy()
    is_interpreted[called[short]] = True
    calling = _calling_operators(host)
    repeated = called[(counts[member] >= _FEWEST) & calling[called]]
    of_operators = np.zeros(len(host), np.bool_)
    of_operators[repeated] = True
    is_interpreted |= step.inside(of_operators) & (calling | (host.duration_ns < longest))
    return is_interpreted


def _calling_operators(host: HostEvents) -> Mask:
    """Operators, and the rows around any."""
    calling: Mask = host.kind == HostKind.OP
    rows = np.flatnonzero(calling)
    while len(rows):
        rows = np.unique(host.parent[rows])
        rows = rows[(rows >= 0) & ~calling[rows]]
        calling[rows] = True
    return calling
