"""The step waits for its next batch.

What it looks for
    Time inside `__next__` of a DataLoader in which the device is idle; on a CPU, all of it. Python
    loops of the samples, and operators that they call one sample at a time, can be one operator on
    the whole batch.

Why it costs time
    Without workers the batch is prepared between the steps by the process that also launches
    kernels. With too few or slow workers the queue of batches runs empty.

What to change
    Make samples with a few operators on whole arrays instead of Python loops over their values.
    Use `DataLoader(..., num_workers=4, persistent_workers=True)`, with `pin_memory=True` if batches
    are copied to a GPU, and a larger `prefetch_factor` if batches take unequal time.

When it does not help
    When the machine has no spare cores (only cheaper samples help), or storage is the limit.
    Workers divide the time of a batch at most by their number, and on a CPU they use cores that the
    step needs.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.fixes import loaders
from boundby.fixes.loaders import most_workers, spare_workers
from boundby.model import HostKind
from boundby.model.assumptions.host import AWAKE_SHARE, CORE_MOVE_NS, CORES_FULL, CPU_WAIT_LIMIT
from boundby.model.assumptions.program_savings import (
    MORE_WORKERS_LEFT,
    READY_BATCH_LEFT,
    VECTORISED_LOOP_LEFT,
)
from boundby.model.rows import NO_LINE
from boundby.step.loading import at_once, interpreted, operators_of_batches
from boundby.step.model import Edit, StepView
from boundby.step.nesting import nearest
from boundby.step.rows import loaded_ns

_WITHOUT_LOOPS = "  # and prepare samples once, or with tensor operators, not in Python loops"
_COUNTS = 0.1  # share of the wait; lines and loops with less are not named
_MOST_LINES = 2  # display limit
_WITH_WORKERS = "_MultiProcessing"
_USUAL_WORKERS = 4  # proposed where the number of cores is unknown


def detect(step: StepView) -> Detection | None:
    host = step.timeline.host
    waiting = host.kind == HostKind.DATA
    around = np.append(nearest(host.parent, waiting), -1)[host.parent]
    outermost = np.flatnonzero(waiting & (around < 0))
    waited = step.account.overhead.parts.get("data", 0.0)
    if not len(outermost) or waited <= 0:
        return None
    made_with = operators_of_batches(step)
    if step.device == "cpu":
        waited = step.data_wait.after_ns + _work_ns(step, made_with)
    cores = step.host_counters.cores
    rest = max(1.0, step.wall_ns - waited)
    # One worker makes a batch as fast as the script did: enough if the step takes as long.
    wanted = math.ceil(max(waited, _made_ns(step)) / rest)
    workers = (
        min(max(wanted, spare_workers(cores)), most_workers(cores)) if cores else _USUAL_WORKERS
    )
    named = {step.timeline.names[name] for name in host.name[waiting]}
    has_workers = any(_WITH_WORKERS in name for name in named)
    is_full = has_workers and _is_full(step)
    together = {} if has_workers else at_once(step, made_with)
    looped = min(waited, loaded_ns(step, interpreted(step)) + _gain_ns(step, together))
    lines = _lines(step, outermost)
    has_loops = not has_workers and looped >= _COUNTS * waited
    if is_full or has_workers:
        worst, expected, best = (
            _shorter(step, made_with, left) for left in MORE_WORKERS_LEFT.high_to_low
        )
    else:
        as_now = _shortest_steps(step, waited, workers)
        saved = looped * (1 - VECTORISED_LOOP_LEFT.value)
        vectorised = _shortest_steps(step, waited, workers, saved)
        worst, expected, best = (
            _shorter(step, made_with, max(left, (least - (step.wall_ns - waited)) / waited))
            for left, least in zip(
                READY_BATCH_LEFT.high_to_low, (as_now[0], *vectorised[1:]), strict=True
            )
        )
    return Detection(
        low=worst,
        expected=expected,
        high=best,
        where=lines if has_workers else [*lines, *_making(step, waited, lines)],
        change=_cheaper(step)
        if is_full
        else _more(step, workers)
        if has_workers
        else _loader(step, workers) + (_WITHOUT_LOOPS if has_loops else ""),
        assumes="samples can be prepared in half the time; best case: in none"
        if is_full
        else "idle cores can prepare batches"
        + (", and tensor operators replace the samples' Python loops" if has_loops else ""),
    )


def _loader(step: StepView, workers: int) -> str:
    pinned = "pin_memory=True, " if step.device == "cuda" else ""
    return f"DataLoader(dataset, num_workers={workers}, {pinned}persistent_workers=True)"


def _more(step: StepView, workers: int) -> str:
    """The change that suggests more workers: as many as there are cores, or twice as many as now,
    which overlap only waits, as for a disk."""
    cores, have = step.host_counters.cores or workers, step.host_counters.loader_workers
    wanted = cores if have < cores else 2 * have
    return f"{_loader(step, wanted)}  # {_instead_of(have)}"


def _cheaper(step: StepView) -> str:
    seen = step.host_counters
    return f"# make samples cheaper: none of {seen.cores} cores is idle"


def _instead_of(workers: int) -> str:
    return f"instead of {workers}" if workers else "more than now"


def _is_full(step: StepView) -> bool:
    """Whether the script and its processes, or other programs, use all cores."""
    seen = step.host_counters
    if seen.cpu_wait_share > CPU_WAIT_LIMIT.value:
        return True
    if not seen.cores or not seen.wall_ns or seen.ours_ns is None or seen.workers_ns is None:
        return False
    return seen.ours_ns + seen.workers_ns > CORES_FULL.value * seen.cores * seen.wall_ns


def _made_ns(step: StepView) -> float:
    """The host's time to make a batch, if the simulation knows it."""
    return float(step.launches.data_ns.sum())


def _shortest_steps(
    step: StepView, waited: float, workers: int, cheaper: float = 0.0
) -> tuple[float, float, float]:
    """The minimum step time: worst, expected, best; batches are not needed faster.

    On a CPU the present work remains, and the number of cores limits it. Worst: all present thread
    time, waits included. Expected: the step's own work on all cores and the batch on one. Best: the
    step's work on one of them. Sharing a core slows the step further.
    """
    supply = max(0.0, max(waited, _made_ns(step)) - cheaper) / workers
    seen = step.host_counters
    if step.device != "cpu" or not seen.cores:
        return supply, supply, supply
    rest = step.wall_ns - waited
    batch, busy = waited, np.inf
    if seen.main is not None and seen.wall_ns:
        # A batch that sleeps, or waits for a disk, needs no core; one that waits for a core does.
        awake = min(
            1.0, (seen.main.ran_ns + seen.main.delayed_ns) / seen.wall_ns / AWAKE_SHARE.value
        )
        batch = min(waited, max(0.0, step.wall_ns * awake - rest))
    if seen.ours_ns is not None and seen.wall_ns:
        busy = step.wall_ns * seen.ours_ns / seen.wall_ns
    batch, busy = max(0.0, batch - cheaper), max(rest, busy - cheaper)
    usual = min(busy, rest * seen.cores + batch)
    worst = busy if np.isfinite(busy) else usual
    others = seen.cpu_wait_share > CPU_WAIT_LIMIT.value
    crowded = 1.0 if others else _crowded(usual - batch, rest, seen.cores)
    longest, likely = _slowdown_beside_worker(rest, batch, crowded, seen.cores)
    return (
        max(supply, worst / seen.cores, longest),
        max(supply, usual / seen.cores, likely),
        max(supply, (rest + batch) / seen.cores),
    )


def _crowded(record: float, rest: float, cores: int) -> float:
    """The share of a step's own time in which its threads use every core."""
    return min(1.0, max(0.0, record / rest - (cores - 1)))


def _slowdown_beside_worker(
    rest: float, batch: float, crowded: float, cores: int
) -> tuple[float, float]:
    """The slowdown of a CPU step beside a worker that makes the next batch: worst and expected.

    What the worker takes from one of the step's threads, while they use all cores, delays all of
    them until the system has moved them: a step of 168 ms on both of two cores with batches of 23
    ms took 191 ms without workers, 196 with one and 194 with two; with batches of 182 ms it took
    350, 279 and 279. A thread that shares its core has half of it.
    """
    until_moved = min(batch, CORE_MOVE_NS.value) * (1 - 1 / cores)
    likely = rest + crowded * (until_moved + batch / cores)
    return min(rest + batch if crowded else rest, 2 * rest), min(likely, 2 * rest)


def _work_ns(step: StepView, operators: Sequence[int]) -> float:
    return step.cpu_contention * sum(step.op_records[index].exposed_ns for index in operators)


def _gain_ns(step: StepView, times: Mapping[int, float]) -> float:
    return step.cpu_contention * sum(
        step.op_records[index].exposed_ns - ns for index, ns in times.items()
    )


def _shorter(step: StepView, operators: Sequence[int], left: float) -> Edit:
    """The edit after which a part of the time for a batch remains."""
    left = min(1.0, left)
    times = {index: left * step.op_records[index].exposed_ns for index in operators}
    return Edit.save_host(step.data_wait * (1 - left)) + Edit.set_time(times)


def _making(step: StepView, waited: float, known: list[str]) -> list[str]:
    """The lines that take longest to make samples."""
    by_line = {row.where: row.parts.get("data", 0.0) for row in step.line_rows}
    for index in operators_of_batches(step):
        record = step.op_records[index]
        line = step.timeline.sources[record.source] if record.source >= 0 else NO_LINE
        by_line[line] = by_line.get(line, 0.0) + record.exposed_ns
    ranked = sorted(by_line, key=lambda line: -by_line[line])
    least = _COUNTS * waited
    return [line for line in ranked if by_line[line] >= least and line not in (*known, NO_LINE)][
        :_MOST_LINES
    ]


def _lines(step: StepView, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    sources = step.timeline.sources
    found = {int(source) for source in step.timeline.host.source[rows]}
    return [sources[source] for source in found if 0 <= source < len(sources)]


FAULT = Fault(
    id="waiting-for-data",
    title="Step waits for data",
    kind="mistake",
    group="overhead",
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
    fixes=(
        loaders.WORKERS,
        loaders.ALL_WORKERS,
    ),
)
