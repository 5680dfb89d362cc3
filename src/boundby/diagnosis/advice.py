"""Advice for a step: findings, alone and together, larger batches, faster chips."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from boundby import faults
from boundby.analysis.chip_upgrade import faster_chips
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model.assumptions.savings import PROCESSES_DIFFER
from boundby.model.estimate import Estimate
from boundby.model.finding import BatchRow, ChipRow, Finding, WhatIf
from boundby.step.model import StepModel

Row = TypeVar("Row", WhatIf, BatchRow)
Timer = Callable[[Sequence[OpBenchmark]], dict[OpBenchmark, float]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Findings for a step, alone and combined, and the step with larger batches or on other
    chips."""

    findings: list[Finding] = dataclasses.field(default_factory=list)
    what_if: list[WhatIf] = dataclasses.field(default_factory=list)
    batches: list[BatchRow] = dataclasses.field(default_factory=list)
    bigger_chips: list[ChipRow] = dataclasses.field(default_factory=list)


def advise(step_models: Sequence[StepModel], timer: Timer | None) -> Advice:
    """The advice for a step. If faults request operator benchmarks, they are run, and all faults
    again."""
    findings = faults.find(step_models)
    timings = step_models[0].timings
    if timer is not None and timings.requested:
        timings.results.update(timer(list(timings.requested)))
        findings = faults.find(step_models)
    advice = Advice(
        findings=findings,
        what_if=faults.combine(step_models, findings),
        batches=faults.batches(*step_models),
        bigger_chips=faster_chips(step_models[0], findings),
    )
    return _in_another_process(advice, step_models[0].wall_ns)


def _in_another_process(advice: Advice, wall_ns: float) -> Advice:
    """A fix runs in another process than the observed step: widen every range by the usual
    difference."""
    by_ns = PROCESSES_DIFFER.value * wall_ns
    findings = [
        finding
        if finding.relative_to == "run"
        else msgspec.structs.replace(finding, saving_ns=_widened(finding.saving_ns, by_ns, wall_ns))
        for finding in advice.findings
    ]
    what_if = [
        msgspec.structs.replace(
            row,
            wall_ns=_widened(row.wall_ns, by_ns),
            saving_ns=_saving_widened(row.saving_ns, by_ns),
        )
        if row.faults
        else row
        for row in advice.what_if
    ]
    batches = [
        msgspec.structs.replace(
            row,
            wall_ns=_widened(row.wall_ns, row.factor * by_ns),
            saving_ns=_saving_widened(row.saving_ns, row.factor * by_ns),
        )
        for row in advice.batches
    ]
    return dataclasses.replace(advice, findings=findings, what_if=what_if, batches=batches)


def _widened(found: Estimate, by_ns: float, most_ns: float = math.inf) -> Estimate:
    high = max(found.expected, min(found.high + by_ns, most_ns))
    return Estimate(low=max(0.0, found.low - by_ns), expected=found.expected, high=high)


def _saving_widened(found: Estimate | None, by_ns: float) -> Estimate | None:
    """The saving with its range widened; a fix without a saving may also cost that much."""
    if found is None:
        return None
    return Estimate(low=found.low - by_ns, expected=found.expected, high=found.high + by_ns)


def doubted(advice: Advice, wall_ns: float) -> Advice:
    """Advice for a doubtful step: ranges widened, so that each change may save nothing."""

    def again(expected_ns: float) -> float:
        """The step time after the same speed-up twice."""
        return expected_ns**2 / wall_ns

    findings = []
    for finding in advice.findings:
        if finding.relative_to == "run":
            findings.append(finding)
            continue
        saving = finding.saving_ns
        twice = wall_ns - again(max(0.0, wall_ns - saving.expected))
        wider = Estimate(low=0.0, expected=saving.expected, high=max(saving.high, twice))
        findings.append(msgspec.structs.replace(finding, saving_ns=wider))
    what_if = []
    for row in advice.what_if:
        wall = row.wall_ns
        low, high = min(wall.low, again(wall.expected)), max(wall.high, wall_ns)
        wider = Estimate(low=low, expected=wall.expected, high=high)
        what_if.append(_doubted(row, wider, wall_ns))
    batches = []
    for batch in advice.batches:
        wall, factor = batch.wall_ns, batch.factor
        # A larger batch saves time per sample, but its step is not shorter than the present one.
        least = max(wall_ns, factor * again(wall.expected / factor))
        low, high = min(wall.low, least), max(wall.high, factor * wall_ns)
        wider = Estimate(low=low, expected=wall.expected, high=high)
        batches.append(_doubted(batch, wider, factor * wall_ns))
    return dataclasses.replace(advice, findings=findings, what_if=what_if, batches=batches)


def without_batches(advice: Advice) -> Advice:
    """Advice for a step that the program does not repeat: nothing on larger batches."""
    findings = [finding for finding in advice.findings if finding.relative_to != "samples"]
    return dataclasses.replace(advice, findings=findings, batches=[])


def _doubted(row: Row, wall: Estimate, before_ns: float) -> Row:
    """The saving with a range as wide as that of the step time."""
    saving = row.saving_ns
    if saving is not None:
        low, high = before_ns - wall.high, before_ns - wall.low
        saving = Estimate(
            low=min(saving.low, low), expected=saving.expected, high=max(saving.high, high)
        )
    return msgspec.structs.replace(row, wall_ns=wall, saving_ns=saving)
