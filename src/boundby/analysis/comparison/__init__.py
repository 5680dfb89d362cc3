"""Compares two diagnoses: what became slower, by how much, and whether that is noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from boundby.analysis.comparison.lines import match_lines
from boundby.analysis.comparison.trees import call_path_differences, module_differences
from boundby.model.assumptions.host import CPU_WAIT_LIMIT
from boundby.model.assumptions.verdict import PROCESS_SLOWDOWN
from boundby.model.comparison import Comparison, Difference, Side
from boundby.model.diagnosis import Diagnosis
from boundby.model.estimate import Estimate
from boundby.model.rows import LineRow
from boundby.step.idle_causes import CPU_WAIT

_FEWEST_SAMPLES = 5  # of clean steps, for a bootstrap
_RESAMPLES = 4000  # of the bootstrap
_MOST_ROWS = 400  # file size limit
_NO_CHANGE = Estimate(low=1.0, expected=1.0, high=1.0)  # definition
_MISSING = 0.01  # share of a step in lines beyond the row limit


def compare(before: Diagnosis, after: Diagnosis, *, names: tuple[str, str]) -> Comparison:
    same = before == after
    refused = "" if same else _refused(before, after)
    ratio, beyond = (_NO_CHANGE, False) if same else _ratio(before, after)
    if refused:
        beyond = None
    return Comparison(
        same=same,
        refused=refused,
        before=_side(before, names[0]),
        after=_side(after, names[1]),
        ratio=ratio,
        beyond_noise=beyond,
        groups=_groups(before, after),
        ops=_ops(before, after),
        lines=_lines(before.lines, after.lines),
        modules=module_differences(before.modules, after.modules)[:_MOST_ROWS],
        paths=_ranked(call_path_differences(before.lines, after.lines)),
        warnings=([f"not judged: {refused}"] if refused else []) + _warnings(before, after),
    )


def _side(diagnosis: Diagnosis, name: str) -> Side:
    step = diagnosis.step
    works = 1 - _waiting_share(diagnosis)
    return Side(
        name=name,
        target=diagnosis.target,
        device=diagnosis.machine.device,
        kind=step.kind,
        bound_by=diagnosis.verdict.bound_by,
        wall_ns=working_ns(diagnosis),
        wall_source=step.wall_source,
        interval_ns=(step.wall_interval_ns[0] * works, step.wall_interval_ns[1] * works),
        samples_ns=_samples(diagnosis),
        waiting_share=_waiting_share(diagnosis),
        threads=diagnosis.machine.threads,
    )


def working_ns(diagnosis: Diagnosis) -> float:
    """The step time without waiting for a CPU core, which depends on other programs."""
    return diagnosis.step.wall_ns * (1 - _waiting_share(diagnosis))


def _waiting_share(diagnosis: Diagnosis) -> float:
    lost = diagnosis.account.overhead.parts.get(CPU_WAIT, 0.0)
    return min(1.0, lost / diagnosis.step.wall_ns) if diagnosis.step.wall_ns else 0.0


def _refused(before: Diagnosis, after: Diagnosis) -> str:
    """Why the times cannot be compared: a busy machine disturbs them."""
    busy = [
        f"{which} waited for a core for {share:.0%} of its steps"
        for which, diagnosis in (("A", before), ("B", after))
        if (share := _waiting_share(diagnosis)) > CPU_WAIT_LIMIT.value
    ]
    if not busy:
        return ""
    return f"the machine was busy: {' and '.join(busy)}; run again on a quiet machine"


def _ratio(before: Diagnosis, after: Diagnosis) -> tuple[Estimate, bool | None]:
    """The ratio of the medians, after over before, and whether it is beyond noise. The interval is
    by resampling; with few samples it spans all of them."""
    expected = working_ns(after) / max(working_ns(before), 1.0)
    first, second = _samples(before), _samples(after)
    if min(len(first), len(second)) >= _FEWEST_SAMPLES:
        low, high = _resampled(first, second)
    elif min(len(first), len(second)) > 1:
        low, high = min(second) / max(first), max(second) / min(first)
    else:
        return Estimate(low=expected, expected=expected, high=expected), None
    shorter_before, longer_before = _profiled_reach(before)
    shorter_after, longer_after = _profiled_reach(after)
    low = expected / _wider(expected / min(low, expected), longer_before, shorter_after)
    high = expected * _wider(max(high, expected) / expected, shorter_before, longer_after)
    return Estimate(low=low, expected=expected, high=high), not low <= 1 <= high


def _wider(*reaches: float) -> float:
    """The interval widened by the difference between processes: independent errors, as factors."""
    return math.exp(math.hypot(*map(math.log, (*reaches, PROCESS_SLOWDOWN.value))))


def _profiled_reach(diagnosis: Diagnosis) -> tuple[float, float]:
    """How much shorter and how much longer the step may be than estimated, as factors.

    Profiled steps of one process are alike, but all contain the profiler's overhead, which differs
    from process to process.
    """
    step = diagnosis.step
    low, high = step.wall_interval_ns
    if step.wall_source != "profiled" or not 0 < low <= step.wall_ns <= high:
        return 1.0, 1.0
    return step.wall_ns / low, high / step.wall_ns


def _samples(diagnosis: Diagnosis) -> list[float]:
    """The samples whose median is the step time; a given time has none, nor do steps of no
    time."""
    step = diagnosis.step
    around = step.samples_ns and min(step.samples_ns) <= step.wall_ns <= max(step.samples_ns)
    samples = [ns * (1 - _waiting_share(diagnosis)) for ns in step.samples_ns] if around else []
    return samples if min(samples, default=0.0) > 0 else []


def _kind(diagnosis: Diagnosis) -> str:
    """The kind of step, without the step's number; older files do not separate the two."""
    return diagnosis.step.series or diagnosis.step.kind


def _resampled(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the ratio of medians, by bootstrap."""
    chance = np.random.default_rng(0)
    medians = [
        np.median(chance.choice(np.asarray(samples), (_RESAMPLES, len(samples))), axis=1)
        for samples in (first, second)
    ]
    low, high = np.percentile(medians[1] / medians[0], [2.5, 97.5])
    return float(low), float(high)


def _groups(before: Diagnosis, after: Diagnosis) -> list[Difference]:
    """The account's groups, each followed by its parts."""
    rows = []
    others = after.account.groups()
    for name, group in before.account.groups().items():
        other = others[name]
        waits = group.parts.get(CPU_WAIT, 0.0), other.parts.get(CPU_WAIT, 0.0)
        rows.append(_difference(name, "", group.ns - waits[0], other.ns - waits[1]))
        for part in dict.fromkeys([*group.parts, *other.parts]):
            if part == CPU_WAIT:
                continue
            now, then = group.parts.get(part, 0.0), other.parts.get(part, 0.0)
            if now or then:
                rows.append(_difference(name, part, now, then))
    return rows


def _ops(before: Diagnosis, after: Diagnosis) -> list[Difference]:
    """The changes by operator and shapes, at any line: lines move between versions."""
    gathered: dict[tuple[str, str], list[list[float]]] = {}
    for side, diagnosis in enumerate((before, after)):
        for row in diagnosis.ops:
            entry = gathered.setdefault((row.name, row.shapes), [[], []])
            entry[side] += [row.ns, row.count]
    rows = []
    for (name, shapes), (first, second) in gathered.items():
        rows.append(
            Difference(
                name=name,
                detail=shapes,
                before_ns=sum(first[0::2]) if first else None,
                after_ns=sum(second[0::2]) if second else None,
                delta_ns=sum(second[0::2]) - sum(first[0::2]),
                before_count=int(sum(first[1::2])) if first else None,
                after_count=int(sum(second[1::2])) if second else None,
            )
        )
    return _ranked(rows)


def _lines(before: Sequence[LineRow], after: Sequence[LineRow]) -> list[Difference]:
    """The changes by source line, also if a line has moved."""
    pairs, removed, added = match_lines(before, after)
    rows = [
        _difference(b.where, "" if a.where == b.where else f"was {a.where}", a.ns, b.ns, b.text)
        for a, b in pairs
    ]
    rows += [_difference(row.where, "gone", row.ns, None, row.text) for row in removed]
    rows += [_difference(row.where, "new", None, row.ns, row.text) for row in added]
    return _ranked(rows)


def _difference(
    name: str,
    detail: str,
    before_ns: float | None,
    after_ns: float | None,
    text: str | None = None,
) -> Difference:
    return Difference(
        name=name,
        detail=detail,
        text=text,
        before_ns=before_ns,
        after_ns=after_ns,
        delta_ns=(after_ns or 0.0) - (before_ns or 0.0),
    )


def _ranked(rows: list[Difference]) -> list[Difference]:
    """The rows with the largest slowdown first, the largest speed-up last."""
    largest = sorted(rows, key=lambda row: -abs(row.delta_ns))[:_MOST_ROWS]
    return sorted(largest, key=lambda row: -row.delta_ns)


def _whole(diagnosis: Diagnosis) -> bool | None:
    """Whether its lines add up to the step; None without lines."""
    missing = working_ns(diagnosis) - sum(row.ns for row in diagnosis.lines)
    return missing <= _MISSING * diagnosis.step.wall_ns if diagnosis.lines else None


def _warnings(before: Diagnosis, after: Diagnosis) -> list[str]:
    warnings = []
    if before.machine.device != after.machine.device:
        warnings.append(
            f"different machines: {before.machine.device} and {after.machine.device}; "
            "differences may come from the machines, not from the program"
        )
    threads = before.machine.threads, after.machine.threads
    if None not in threads and threads[0] != threads[1]:
        warnings.append(
            f"different thread counts: {threads[0]} and {threads[1]}; differences may come from "
            "the threads"
        )
    if before.step.wall_source != after.step.wall_source:
        warnings.append(
            f"one step was timed {before.step.wall_source}, the other {after.step.wall_source}"
        )
    elif before.step.wall_source == "profiled":
        warnings.append("both steps were timed under a profiler, which slows the host")
    if _kind(before) != _kind(after):
        warnings.append(f"different steps: {_kind(before)} and {_kind(after)}")
    if {_whole(before), _whole(after)} >= {True, False}:
        warnings.append(
            "the lines of one diagnosis, from an older boundby, leave out overhead: run both again "
            "to compare their lines"
        )
    if before.verdict.uncertain or after.verdict.uncertain:
        warnings.append("a verdict is uncertain: see the two diagnoses")
    return warnings
