"""Puts an account, a verdict and advice together into a diagnosis."""

from __future__ import annotations

from typing import Literal

import numpy as np

from boundby.analysis.account import Attribution
from boundby.analysis.critical_path import critical_path_rows, slack_rows
from boundby.analysis.launches import launch_queue, launch_rows, sequence_rows
from boundby.analysis.line_advice import with_advice
from boundby.analysis.slices import slices_of
from boundby.diagnosis.advice import Advice
from boundby.model import UNKNOWN_PRECISION, Machine, Note, Precision, Timeline
from boundby.model.account import Account, Group, Utilisation, Verdict
from boundby.model.diagnosis import DecodeLimit, Diagnosis, StepTimes
from boundby.model.run import RunParts
from boundby.step.host_intervals import no_intervals
from boundby.step.simulator import LaunchSequence


def assemble(
    attribution: Attribution,
    timeline: Timeline | None,
    *,
    target: str | None,
    framework: Literal["torch", "jax"] | None = None,
    machine: Machine,
    step: StepTimes,
    precision: Precision = UNKNOWN_PRECISION,
    verdict: Verdict,
    advice: Advice,
    notes: list[Note],
    run: RunParts | None = None,
    decode_limit: DecodeLimit | None = None,
    launches: LaunchSequence | None = None,
) -> Diagnosis:
    return Diagnosis(
        target=target,
        framework=framework,
        machine=machine,
        step=step,
        precision=precision,
        run=run,
        account=attribution.account,
        verdict=verdict,
        utilisation=attribution.utilisation,
        decode_limit=decode_limit,
        classes=attribution.classes,
        kernel_classes=attribution.kernel_classes,
        ops=attribution.ops,
        lines=with_advice(attribution.lines, attribution.ops, advice.findings),
        modules=attribution.modules,
        collectives=attribution.collectives,
        idle=attribution.idle,
        launches=launch_rows(timeline) if timeline is not None else [],
        launch_queue=launch_queue(timeline) if timeline is not None else None,
        sequences=sequence_rows(timeline) if timeline is not None else [],
        critical_path=(
            critical_path_rows(launches, timeline, attribution)
            if launches is not None and timeline is not None
            else []
        ),
        slack=(
            slack_rows(launches, timeline, attribution)
            if launches is not None and timeline is not None
            else []
        ),
        timeline=slices_of(timeline, attribution) if timeline is not None else [],
        findings=advice.findings,
        what_if=advice.what_if,
        batches=advice.batches,
        bigger_chips=advice.bigger_chips,
        notes=notes + attribution.notes,
    )


def unknown_account(wall_ns: float) -> Attribution:
    """The account of a step of which only the time is known."""
    empty = Group()
    return Attribution(
        account=Account(
            compute=empty,
            bandwidth=empty,
            overhead=empty,
            unknown=Group(ns=wall_ns, share=1.0),
        ),
        utilisation=Utilisation(),
        classes=[],
        kernel_classes=[],
        ops=[],
        lines=[],
        modules=[],
        collectives=[],
        idle=[],
        device_busy_ns=None,
        kernels=0,
        inferred_share=0.0,
        scaled=1.0,
        op_records=[],
        member=np.empty(0, np.int64),
        where=no_intervals(),
        notes=[],
    )
