"""Parts of a step, chosen by their host rows, and the step without them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from boundby.model import HostKind, Ints, Phase
from boundby.model.assumptions.host import OPERATOR_NS
from boundby.model.assumptions.verdict import DISTURBED_CPU
from boundby.model.evidence import ModuleCall
from boundby.step.edit import Edit, HostTime
from boundby.step.host_intervals import called_from, main_thread
from boundby.step.model import Floats, StepView
from boundby.step.nesting import Mask, nearest
from boundby.step.user_python import AtLine, Stretch, in_stretches

_MODULE = re.compile(r"^nn\.Module: (.+)_\d+$")
_FUNCTION = re.compile(r"^(.+\.py)\(\d+\): ")


def without_rows(step: StepView, rows: Mask, left: float = 0.0) -> Edit:
    """The edit without the operators of these rows and the Python around them; a share of both
    remains."""
    indices = [i for i, op in enumerate(step.op_records) if op.row >= 0 and rows[op.row]]
    edit = Edit.set_time(
        {index: left * step.op_records[index].ns for index in indices},
        launch_share=left if step.device != "cpu" else 1.0,
    )
    if step.device == "cpu":
        return edit + Edit.save_host(HostTime(after_ns=(1 - left) * python_ns(step, rows)))
    return edit + Edit.save_host(_between_launches(step, rows) * (1 - left))


def _between_launches(step: StepView, rows: Mask) -> HostTime:
    """The host time of a device step in functions of these rows that issue nothing."""
    host, launches = step.timeline.host, step.launches
    python = rows & (host.kind == HostKind.PYTHON)
    outermost = python & ~np.append(python, False)[host.parent]
    around = nearest(host.parent, outermost)
    issues = np.unique(around[(host.kind != HostKind.PYTHON) & (around >= 0)])
    chosen = np.setdiff1d(np.flatnonzero(outermost), issues)
    ends = host.start_ns + host.duration_ns
    intervals = [
        Stretch(start_ns=int(host.start_ns[row]), end_ns=int(ends[row]), loops=False)
        for row in chosen
    ]
    inside_ns, total_ns = in_stretches(launches, step.timeline, intervals)
    part = np.minimum(1.0, inside_ns / total_ns)
    return HostTime(
        before_ns=launches.host_ns * part[:-1], after_ns=launches.after_ns * float(part[-1])
    )


def python_ns(step: StepView, rows: Mask) -> float:
    """Dispatch and Python time in these rows on a CPU: their part of that time at the rows'
    lines."""
    return step.cpu_contention * _in_rows(step, rows, "python")


def loaded_ns(step: StepView, rows: Mask) -> float:
    """The part of the wait for the next batch that these rows take."""
    return step.cpu_contention * _in_rows(step, rows, "data")


def _in_rows(step: StepView, rows: Mask, part: str) -> float:
    sources = step.timeline.sources
    by_line = {row.where: row.parts.get(part, 0.0) for row in step.line_rows}
    return sum(
        min(by_line.get(sources[at], 0.0) * share.share, DISTURBED_CPU.value * share.ns)
        for at, share in _shares(step, rows).items()
    )


def time_of_rows(step: StepView, rows: Mask) -> float:
    """The time of these rows in the clean step."""
    work = sum(op.exposed_ns for op in step.op_records if op.row >= 0 and rows[op.row])
    return step.cpu_contention * work + (python_ns(step, rows) if step.device == "cpu" else 0.0)


def user_frames(step: StepView) -> Ints:
    """For each row the call of a Python function of the user's that it is in, by its line."""
    host = step.timeline.host
    frames = np.full(len(host), -1, np.int64)
    is_user_function = np.zeros(len(host), np.bool_)
    called = called_from(host)
    python = host.kind == HostKind.PYTHON
    # A function of the user's has its own line as its source, and its caller's beside it.
    is_user_function[python] = (host.source[python] >= 0) & (host.source[python] != called[python])
    for row, parent in enumerate(host.parent.tolist()):
        if is_user_function[row]:
            frames[row] = row
        elif parent >= 0:
            frames[row] = frames[parent]
    return frames


def share_between(step: StepView, start_ns: int, end_ns: int) -> dict[str, float]:
    """For each line the part of its time outside of kernels that passed between two moments."""
    where = step.where
    main_intervals = where.on(main_thread(step.timeline))
    if end_ns <= start_ns:
        return {}
    lengths = _outside_of_kernels(step, main_intervals)
    source, has_line = where.source[main_intervals], where.source[main_intervals] >= 0
    # An interval that began before the first call prepares it.
    chosen = (
        has_line
        & (where.end_ns[main_intervals] >= start_ns)
        & (where.start_ns[main_intervals] < end_ns)
    )
    size = len(step.timeline.sources)
    total = np.bincount(source[has_line], lengths[has_line], minlength=size)
    part = np.bincount(source[chosen], lengths[chosen], minlength=size)
    sources = step.timeline.sources
    return {sources[at]: float(part[at] / total[at]) for at in np.flatnonzero(part)}


def _outside_of_kernels(step: StepView, own: slice) -> Floats:
    where = step.where
    lengths = (where.end_ns - where.start_ns)[own].astype(np.float64)
    works = np.zeros(len(step.timeline.host) + 1, np.bool_)
    works[[op.row for op in step.op_records if op.row >= 0]] = True
    works[-1] = False
    dispatch_ns = step.machine.overheads.eager_op_ns or OPERATOR_NS.value
    return np.where(works[where.row[own]], np.minimum(lengths, dispatch_ns), lengths)


def _shares(step: StepView, rows: Mask) -> dict[int, AtLine]:
    """The share of these rows in the time of each line outside of operators. A line's time between
    its calls is divided in the same proportion: it makes their arguments, or loops over them."""
    where, timeline = step.where, step.timeline
    if not len(where.row):
        return {}
    main_intervals = where.on(main_thread(timeline))
    lengths = _outside_of_kernels(step, main_intervals)
    row, source = where.row[main_intervals], where.source[main_intervals]
    called = ~np.append(step.memoised(of_the_script), True)[row] | np.append(rows, False)[row]
    chosen = np.append(rows, False)[row]
    has_line = source >= 0
    size = len(timeline.sources)
    total = np.bincount(source[called & has_line], lengths[called & has_line], minlength=size)
    part = np.bincount(source[has_line & chosen], lengths[has_line & chosen], minlength=size)
    passed = np.bincount(source[has_line], lengths[has_line], minlength=size)
    return {
        int(at): AtLine(
            ns=float(part[at] / total[at] * passed[at]), share=float(part[at] / total[at])
        )
        for at in np.flatnonzero(part)
    }


def of_the_script(step: StepView) -> Mask:
    """Functions in the script's files: their own time is at the lines of their own code."""
    host, timeline = step.timeline.host, step.timeline
    files = np.array([*(line.rpartition(":")[0] for line in timeline.sources), ""])
    matches = [_FUNCTION.match(name) for name in timeline.names]
    defined = np.array([match[1] if match else "" for match in matches] or [""])
    in_own_file: Mask = (host.kind == HostKind.PYTHON) & (defined[host.name] == files[host.source])
    return in_own_file & (host.source >= 0)


def rows_of_calls(step: StepView, calls: Iterable[ModuleCall]) -> Mask:
    """The rows of some calls of modules, forward and backward; none of those that are not found."""
    host, timeline = step.timeline.host, step.timeline
    wanted: dict[str, dict[str, set[int]]] = {}
    for call in calls:
        if call.where:
            places = wanted.setdefault(call.module, {})
            places.setdefault(call.where[0], set()).add(call.occurrence)
    types = [_type_of(name) for name in timeline.names]
    called = called_from(host)
    chosen = np.zeros(len(host), np.bool_)
    for module, places in wanted.items():
        named = np.array([one == module for one in types] or [False])
        seen: Counter[str] = Counter()
        for row in np.flatnonzero((host.kind == HostKind.PYTHON) & named[host.name]).tolist():
            line = _line(step, called[row])
            chosen[row] = seen[line] in places.get(line, ())
            seen[line] += 1
    return step.inside_both_ways(chosen)


def rows_at(step: StepView, lines: Iterable[str]) -> Mask:
    """All rows at some lines, with all that they call."""
    wanted = {at for at, line in enumerate(step.timeline.sources) if line in set(lines)}
    host = step.timeline.host
    at_line = np.isin(host.source, list(wanted)) | np.isin(called_from(host), list(wanted))
    whole = (host.start_ns <= step.timeline.start_ns) & (host.kind == HostKind.PYTHON)
    return step.inside(at_line & ~whole)


def rows_of_nodes(step: StepView, nodes: Sequence[int], total: int) -> Mask | None:
    """Backward rows of autograd nodes, counted as evidence counts them; None if the profiled step
    does not have as many."""
    host = step.timeline.host
    backward = (host.phase == Phase.BACKWARD) & (host.sequence >= 0) & (host.forward >= 0)
    numbers = np.unique(host.sequence[backward])
    if len(numbers) != total:
        return None
    return step.inside(backward & np.isin(host.sequence, numbers[list(nodes)]))


def again_in_nodes(step: StepView, nodes: Sequence[int], total: int) -> Mask | None:
    """Rows of the last backward through autograd nodes that more than one backward passes."""
    rows = rows_of_nodes(step, nodes, total)
    if rows is None:
        return None
    host = step.timeline.host
    evaluated = np.flatnonzero(rows & (host.sequence >= 0) & (host.forward >= 0))
    again = np.zeros(len(host), np.bool_)
    for number in np.unique(host.sequence[evaluated]):
        of_node = evaluated[host.sequence[evaluated] == number]
        in_time = of_node[np.argsort(host.start_ns[of_node], kind="stable")]
        again[in_time[(len(in_time) + 1) // 2 :]] = True
    return step.inside(again)


def forward_lines(step: StepView, rows: Mask) -> list[str]:
    """The lines whose forward made these backward rows, in order of time."""
    return step.lines(op for op in step.op_records if op.row >= 0 and rows[op.row])


def _type_of(name: str) -> str:
    match = _MODULE.match(name)
    return match[1] if match else ""


def _line(step: StepView, source: int) -> str:
    return step.timeline.sources[source] if 0 <= source < len(step.timeline.sources) else ""
