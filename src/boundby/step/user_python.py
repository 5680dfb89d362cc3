"""The script's own Python code, between the model and the operators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boundby.model import HostKind, Timeline
from boundby.model.assumptions.host import LONG_PYTHON_OPERATORS, LOOP_CALLS, OPERATOR_NS
from boundby.model.assumptions.verdict import DISTURBED_CPU
from boundby.model.intervals import Coverage, union
from boundby.step.host_intervals import main_thread
from boundby.step.model import Floats, HostTime, StepView
from boundby.step.nesting import Mask, nearest
from boundby.step.simulator import LaunchSequence

# Python that belongs to the model or to torch. torch's making of batches counts as the script's.
_NOT_ITS_OWN = re.compile(
    r"^nn\.Module: |(?:^|/)torch/(?!utils/data)|^<built-in function collect>$"
)
_OPTIMIZER = "Optimizer."
_RUNS = (HostKind.OP, HostKind.LAUNCH, HostKind.SYNC, HostKind.RUNTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Time of the profiled step in which only the script's own Python ran."""

    start_ns: int
    end_ns: int
    loops: bool
    loads: bool = False  # inside a loader, which makes its samples one by one

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


def stretches(step: StepView) -> list[Stretch]:
    """Intervals in which the script's own Python runs, in order of time."""
    timeline, host = step.timeline, step.timeline.host
    least = LONG_PYTHON_OPERATORS.value * (step.machine.overheads.eager_op_ns or OPERATOR_NS.value)
    others = _is_others(timeline)
    if step.framework == "jax":
        others |= _calls_programs(timeline)
    begins, ends = union(host.start_ns[others], host.duration_ns[others])
    starts = np.concatenate([[timeline.start_ns], ends])
    stops = np.concatenate([begins, [timeline.end_ns]])
    python = np.flatnonzero(host.kind == HostKind.PYTHON)
    loads = np.flatnonzero(host.kind == HostKind.DATA)
    intervals = []
    for at in np.flatnonzero(stops - starts > least):
        start, end = int(starts[at]), int(stops[at])
        inside = python[(host.start_ns[python] >= start) & (host.start_ns[python] < end)]
        most = np.bincount(host.name[inside]).max() if len(inside) else 0
        # A loader counts as a loop, however few calls are in it.
        around = host.start_ns[loads] <= start
        loaded = bool((around & (host.start_ns[loads] + host.duration_ns[loads] >= end)).any())
        loops = loaded or bool(most >= LOOP_CALLS.value)
        intervals.append(Stretch(start_ns=start, end_ns=end, loops=loops, loads=loaded))
    return intervals


def _is_others(timeline: Timeline) -> Mask:
    host, names = timeline.host, timeline.names
    python = np.array([bool(_NOT_ITS_OWN.search(name)) for name in names] or [False])
    marked = np.array([name.startswith(_OPTIMIZER) for name in names] or [False])
    # A function around the whole step is not specific.
    ends = host.start_ns + host.duration_ns
    partial = (host.start_ns > timeline.start_ns) | (ends < timeline.end_ns)
    runs = np.isin(host.kind, _RUNS)
    named = (host.kind == HostKind.OBSERVER) | (
        ((host.kind == HostKind.PYTHON) & python[host.name])
        | ((host.kind == HostKind.ANNOTATION) & marked[host.name])
    )
    others: Mask = runs | (named & partial)
    return others


def _calls_programs(timeline: Timeline) -> Mask:
    """Lines that call a compiled function, also through a library: that is not the script's own
    time."""
    host = timeline.host
    python = host.kind == HostKind.PYTHON
    around = nearest(host.parent, python)[host.kind == HostKind.OP]
    is_calling = np.zeros(len(host), np.bool_)
    is_calling[around[around >= 0]] = True
    return is_calling


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPython:
    """The script's own Python in the clean step: the likely time, and at most, if the profiler did
    not slow it."""

    likely: HostTime
    most: HostTime


def user_python(step: StepView) -> UserPython:
    """The time of the script's own Python, without making a loader's batches and without a library
    that runs the model: a trainer's loop is not the script's."""
    launches = step.launches
    if step.device == "cpu":
        likely_ns, most_ns = (0.0, 0.0) if step.no_user_python else step.memoised(_own_on_cpu)
        return UserPython(
            likely=HostTime(after_ns=step.cpu_contention * likely_ns),
            most=HostTime(after_ns=step.cpu_contention * most_ns),
        )
    clean = np.append(launches.host_ns, launches.after_ns)
    if step.no_user_python:
        clean = np.zeros(len(clean))
    profiled, passed = step.memoised(_own_beside_a_device)
    likely = np.minimum(1.0, profiled / passed) * clean
    most = np.minimum(clean, np.maximum(profiled, likely))
    return UserPython(
        likely=HostTime(before_ns=likely[:-1], after_ns=float(likely[-1])),
        most=HostTime(before_ns=most[:-1], after_ns=float(most[-1])),
    )


def _own_on_cpu(step: StepView) -> tuple[float, float]:
    python = {row.where: row.parts.get("python", 0.0) for row in step.line_rows}
    lines = step.memoised(own_lines)
    # Without a profiler Python is not slower than with one, unless the whole step was slower.
    likely_ns = sum(
        min(python.get(line, 0.0) * at_line.share, DISTURBED_CPU.value * at_line.ns)
        for line, at_line in lines.items()
    )
    profiled = sum(at_line.ns for at_line in lines.values())
    return likely_ns, min(sum(python.values()), max(likely_ns, profiled))


def _own_beside_a_device(step: StepView) -> tuple[Floats, Floats]:
    times = step.memoised(_at_lines)
    by_stretch = zip(times.stretches, times.longest, strict=True)
    script_stretches = [stretch for stretch, line in by_stretch if line >= 0 and times.is_own[line]]
    return in_stretches(step.launches, step.timeline, script_stretches)


def host_time_outside_model(step: StepView) -> HostTime:
    """The host time that does not depend on how the model is run: the script's own Python, a
    library's outside of the model, and waiting for batches."""
    launches = step.launches
    profiled, passed = step.memoised(_all_beside_a_device)
    if step.no_user_python:
        script_ns, _ = step.memoised(_own_beside_a_device)
        profiled, passed = profiled - script_ns, np.maximum(passed - script_ns, 1.0)
    part = np.minimum(1.0, profiled / passed)
    before = np.minimum(launches.host_ns, launches.host_ns * part[:-1] + launches.data_wait_ns)
    return HostTime(before_ns=before, after_ns=launches.after_ns * float(part[-1]))


def _all_beside_a_device(step: StepView) -> tuple[Floats, Floats]:
    return in_stretches(step.launches, step.timeline, _but_loaders(step))


def _but_loaders(step: StepView) -> list[Stretch]:
    return [stretch for stretch in step.memoised(stretches) if not stretch.loads]


def in_stretches(
    launches: LaunchSequence, timeline: Timeline, found: list[Stretch], weight: Sequence[float] = ()
) -> tuple[Floats, Floats]:
    """Profiled time before each action, and after the last: inside some intervals (or a share of
    it), and total."""
    host, rows = timeline.host, launches.rows
    if not len(rows):
        return np.zeros(len(launches.host_ns) + 1), np.ones(len(launches.host_ns) + 1)
    done = host.start_ns[rows] + host.duration_ns[rows]
    since = np.concatenate([[timeline.start_ns], done])
    until = np.concatenate([done, [timeline.end_ns]])
    own_ns = np.zeros(len(since))
    for interval, part in zip(found, weight or [1.0] * len(found), strict=True):
        shared = np.minimum(until, interval.end_ns) - np.maximum(since, interval.start_ns)
        own_ns += part * np.clip(shared, 0, None)
    return own_ns, np.maximum(until - since, 1).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLine:
    """Profiled time of the script's own Python at a line, and its share of the time there that is
    not operators."""

    ns: float
    share: float


def own_lines(step: StepView) -> dict[str, AtLine]:
    """The script's own Python by line; lines where operators take longer are left out."""
    at = step.memoised(_at_lines)
    return {
        step.timeline.sources[line]: AtLine(
            ns=float(at.own_ns[line]), share=float(at.own_ns[line] / at.idle_ns[line])
        )
        for line in np.flatnonzero(at.is_own)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtLines:
    """Times by line: in intervals without operations, in operators, and outside of operators. By
    interval: the line with most of it."""

    stretches: list[Stretch]
    longest: list[int]
    own_ns: Floats
    working_ns: Floats
    idle_ns: Floats

    @property
    def is_own(self) -> Mask:
        is_longer: Mask = self.own_ns > self.working_ns
        return is_longer


def _at_lines(step: StepView) -> _AtLines:
    timeline, host, where = step.timeline, step.timeline.host, step.where
    main_intervals = where.on(main_thread(timeline))
    has_line = where.source[main_intervals] >= 0
    begins, ends = where.start_ns[main_intervals][has_line], where.end_ns[main_intervals][has_line]
    source = where.source[main_intervals][has_line]
    runs = np.isin(host.kind, _RUNS)
    working = Coverage(host.start_ns[runs], host.duration_ns[runs]).between(begins, ends)

    def by_line(ns: Floats, pieces: slice = slice(None)) -> Floats:
        summed = np.bincount(source[pieces], ns, minlength=len(timeline.sources))
        return summed.astype(np.float64)

    intervals = _but_loaders(step)
    longest, own_ns = [], np.zeros(len(timeline.sources))
    for interval in intervals:
        first, last = (
            np.searchsorted(ends, interval.start_ns),
            np.searchsorted(begins, interval.end_ns),
        )
        overlapping = slice(int(first), int(last))
        shared = np.minimum(ends[overlapping], interval.end_ns) - np.maximum(
            begins[overlapping], interval.start_ns
        )
        lines = by_line(np.clip(shared, 0, None).astype(np.float64), overlapping)
        own_ns += lines
        longest.append(int(lines.argmax()) if lines.any() else -1)
    return _AtLines(
        stretches=intervals,
        longest=longest,
        own_ns=own_ns,
        working_ns=by_line(working),
        idle_ns=by_line((ends - begins) - working),
    )
