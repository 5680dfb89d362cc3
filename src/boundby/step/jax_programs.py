"""Calls of JAX programs, for several faults: which are the script's own, and what they cost."""

from __future__ import annotations

import mmap
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.model import HostKind, Ints, Timeline
from boundby.model.assumptions.host import ROLLOUT_CALLS
from boundby.model.estimate import Estimate
from boundby.model.intervals import Coverage
from boundby.model.jax_facts import JaxFacts
from boundby.step.model import StepView
from boundby.step.nesting import nearest

_CALL = "PjitFunction("
_Lines = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerCalls:
    """Operators that the script runs one by one, outside of its own compiled functions."""

    names: dict[str, int]  # how often each ran
    host_ns: float
    where: list[str]


def facts_of(step: StepView) -> JaxFacts | None:
    return step.observation.jax if step.observation is not None else None


def eager_calls(step: StepView) -> EagerCalls:
    """Calls of functions that JAX compiled for single operators, and their host time."""
    facts = facts_of(step)
    own_names = {function.name for function in facts.functions} if facts is not None else set()
    timeline = step.timeline
    host = timeline.host
    called = np.array([_called(name) for name in timeline.names] or [None], object)
    is_eager = np.array([name is not None and name not in own_names for name in called])
    rows = np.flatnonzero(is_eager[host.name] & (host.kind == HostKind.OP))
    # The profiler lists each call twice, one inside the other.
    parents = host.parent[rows]
    inner = (parents >= 0) & (host.name[parents] == host.name[rows])
    rows = rows[~inner]
    names: dict[str, int] = {}
    for name in called[host.name[rows]]:
        names[name] = names.get(name, 0) + 1
    is_own = np.array([name is not None and name in own_names for name in called])
    own_rows = np.flatnonzero(is_own[host.name] & (host.kind == HostKind.OP))
    return EagerCalls(names=names, host_ns=_spent(step, rows, own_rows), where=_lines(step, rows))


def _spent(step: StepView, rows: Ints, own: Ints) -> float:
    """Host time of calls and of the lines that make them, if known, as in a clean step. The time of
    the script's compiled functions at such a line is left out."""
    host = step.timeline.host
    python = nearest(host.parent, host.kind == HostKind.PYTHON)
    lines = np.unique(python[rows][python[rows] >= 0])
    spent = float(host.duration_ns[rows[python[rows] < 0]].sum())
    spent += float(host.duration_ns[lines].sum())
    own_at_lines = own[np.isin(python[own], lines)]
    outer = ~np.isin(host.parent[own_at_lines], own_at_lines)
    spent -= float(host.duration_ns[own_at_lines[outer]].sum())
    if step.timeline.device_kind == "cpu":
        # Meanwhile programs that were called before may still run, on the same cores.
        spent -= _running_ns(step.timeline, lines, own[~np.isin(own, own_at_lines)])
    return in_clean_step(step, max(0.0, spent))


def _running_ns(timeline: Timeline, lines: Ints, calls: Ints) -> float:
    """Time at some lines in which operators ran that calls elsewhere launched."""
    device, host = timeline.device, timeline.host
    ops = launched_by(timeline, calls)
    running = Coverage(device.start_ns[ops], device.duration_ns[ops])
    starts = host.start_ns[lines]
    return float(running.between(starts, starts + host.duration_ns[lines]).sum())


def own_calls_ns(step: StepView) -> float:
    """Host time in calls of the script's compiled functions."""
    facts = facts_of(step)
    own_names = {function.name for function in facts.functions} if facts is not None else set()
    calls = program_calls(step.timeline, own_names)
    return float(step.timeline.host.duration_ns[calls].sum())


def program_calls(timeline: Timeline, functions: Collection[str]) -> Ints:
    """The calls of compiled functions with these names; the profiler lists each twice, one inside
    the other."""
    host = timeline.host
    is_one = np.array([_called(name) in functions for name in timeline.names] or [False])
    rows = np.flatnonzero(is_one[host.name] & (host.kind == HostKind.OP))
    parents = host.parent[rows]
    outer = ~((parents >= 0) & (host.name[parents] == host.name[rows]))
    calls: Ints = rows[outer].astype(np.int64)
    return calls


def is_fetched_each_time(timeline: Timeline, calls: Ints) -> bool:
    """Whether the host fetches a result before most of the next calls, as a rollout does."""
    host = timeline.host
    waits = np.sort(host.start_ns[host.kind == HostKind.SYNC])
    between = np.searchsorted(waits, np.sort(host.start_ns[calls]))
    return len(calls) > 1 and int((np.diff(between) > 0).sum()) > len(calls) // 2


def rollout_span(step: StepView) -> tuple[int, int] | None:
    """First and last call of a function that the script calls many times in a step with values that
    it computes between the calls, as a policy's; None without one."""
    facts = facts_of(step)
    for one in facts.functions if facts is not None else []:
        calls = program_calls(step.timeline, {one.name})
        if one.traced_gradient or one.samples or len(calls) < ROLLOUT_CALLS.value:
            continue
        if one.is_fed or is_fetched_each_time(step.timeline, calls):
            starts = step.timeline.host.start_ns[calls]
            return int(starts.min()), int(starts.max())
    return None


def lines_of_calls(step: StepView, function: str) -> list[str]:
    """The lines that call a compiled function, the most frequent first."""
    sources = step.timeline.host.source[program_calls(step.timeline, {function})]
    lines, counts = np.unique(sources[sources >= 0], return_counts=True)
    return [step.timeline.sources[line] for line in lines[np.argsort(-counts)]]


def launched_by(timeline: Timeline, calls: Ints) -> Ints:
    """The device operations that some calls launched."""
    if not len(calls):
        return calls
    starts = timeline.host.start_ns[calls]
    ends = starts + timeline.host.duration_ns[calls]
    order = np.argsort(starts)
    launch = timeline.device.launch
    at = np.where(launch >= 0, np.append(timeline.host.start_ns, 0)[launch], -1)
    call = np.searchsorted(starts[order], at, side="right") - 1
    inside = (call >= 0) & (at >= 0) & (at < ends[order][np.maximum(call, 0)])
    found: Ints = np.flatnonzero(inside).astype(np.int64)
    return found


def in_clean_step(step: StepView, profiled_ns: float) -> float:
    """Host time of the profiled step as a share of it, of the clean one: a busy machine may have
    slowed either of them."""
    return profiled_ns * step.wall_ns / max(1, step.timeline.wall_ns)


def of_clean_step(step: StepView, *, low: float, expected: float, high: float) -> Estimate:
    """A saving of the clean step, as an edit states it: in the time of the simulated one."""
    times = step.base_ns / step.wall_ns
    return Estimate(low=low * times, expected=expected * times, high=high * times)


def fresh_pages_ns(step: StepView, size: int) -> float:
    """The system's time for new pages of so many bytes: on a CPU freed memory is given back."""
    seen = step.host_counters
    if not seen.fresh_pages or not seen.step_pages:
        return 0.0
    pages = min(float(np.mean(seen.step_pages)), size / mmap.PAGESIZE)
    return pages * seen.system_ns / seen.fresh_pages


def compile_ns(step: StepView, program: str) -> float:
    """The longest compilation of a program."""
    facts = facts_of(step)
    name = program.removeprefix("jit_")
    spent = [
        compilation.ns
        for compilation in (facts.compilations if facts is not None else [])
        if compilation.function in (program, name, f"jit({name})")
    ]
    return max(spent, default=0.0)


def overhead_ns(step: StepView) -> float:
    """The most that a faster host can save. On a CPU operators also become faster, by the cores'
    time that the host takes while they run."""
    overhead = step.account.groups()["overhead"].ns
    threads = step.observation.settings.threads if step.observation is not None else None
    if step.timeline.device_kind != "cpu" or not threads:
        return overhead
    hidden = float(step.launches.host_ns.sum()) + step.launches.after_ns - overhead
    return overhead + max(0.0, hidden) / threads


def _called(name: str) -> str | None:
    return name[len(_CALL) : -1] if name.startswith(_CALL) else None


def _lines(step: StepView, calls: Ints) -> list[str]:
    """The line of the step's loop that leads to most of these calls, and the lines that make them,
    those with most time first."""
    timeline = step.timeline
    if not len(calls):
        return []
    sources: Ints = timeline.host.source[calls].astype(np.int64)
    if (sources < 0).all() and timeline.device.source is not None:
        sources = _of_launched(timeline, calls)
    ranked = _by_time(timeline, sources, timeline.host.source)
    # A model that is not compiled is called at one line, and its operators are at many.
    host = timeline.host
    outer = [] if host.outer is None else _by_time(timeline, host.outer[calls], host.outer)
    lines = [*outer[:1], *ranked[: 3 - len(outer[:1])], *outer[1:2]]
    return [timeline.sources[line] for line in dict.fromkeys(lines)]


def _by_time(timeline: Timeline, wanted: _Lines, lines: _Lines) -> list[int]:
    """Some lines, those with most time of Python first, else the most frequent; `lines`: those of
    all rows."""
    found, counts = np.unique(wanted[wanted >= 0], return_counts=True)
    host = timeline.host
    python = host.kind == HostKind.PYTHON
    spent = [float(host.duration_ns[python & (lines == line)].sum()) for line in found]
    ranked: list[int] = found[np.lexsort((-counts, -np.array(spent)))].tolist()
    return ranked


def _of_launched(timeline: Timeline, calls: Ints) -> Ints:
    """The lines of the device operations that calls launched, from their programs."""
    source = timeline.device.source
    assert source is not None
    return source[launched_by(timeline, calls)].astype(np.int64)
