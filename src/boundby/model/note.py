"""Remarks on a step or on its measurement: a stable code for programs, a text for people."""

from __future__ import annotations

from typing import Literal

from boundby.model.record import Record

# Codes are part of the interface: they are never renamed. Texts may change with any release.
Code = Literal[
    # How the step was captured.
    "too-few-steps",  # the script ended before every window was filled
    "no-clean-steps",
    "no-profile",
    "profiler-unavailable",
    "script-profiler",  # the script's own profiler ran during clean steps
    "other-kind-profiled",
    "observer-failed",
    "graph-recording-failed",
    "evidence-failed",
    "stale-compiled-lines",
    "no-phase-marks",
    # The machine while it was measured.
    "uneven-steps",
    "busy-machine",
    "host-speed-varies",
    "cpu-contention",
    "slow-clean-steps",
    "scaled-to-fit",
    "work-exceeds-step",
    # What a trace file lacks.
    "truncated-file",
    "damaged-events",
    "partial-read",
    "steps-inferred",
    "no-repeated-step",
    "may-be-start-up",
    "other-steps",
    "cpu-trace",
    "device-not-recorded",
    "no-host-events",
    "several-devices",
    "whole-graphs",  # replayed graphs without their kernels
    "graph-captured",  # kernels were recorded into a graph, not run
    "launched-before-trace",
    "unmatched-launches",
    "launches-not-recorded",
    "above-roofline",
    "unmatched-instructions",
    "operators-not-recorded",
    "damaged-program",
    "clock-mismatch",
    "no-shapes",
    "inferred-stream-waits",
    "formula-failed",  # a cost formula of the user's raised; `detail` is the traceback
    "fault-failed",  # looking for a fault raised; `detail` is the traceback
    "device-not-named",
    "device-not-in-datasheet",
    "capture-not-used",  # no graphs in the step
    "capture-differs",  # the other trace has other kernels, or other shapes
    "model-not-used",  # the model's limit does not apply to this step
    # Ranks of a job.
    "rank-unreadable",
    "collectives-differ",
    "other-files",  # files of the folder that are no traces
    # Proofs.
    "interrupted",
    "no-fix-tried",
    "script-ended",  # or failed by itself, before fixes were decided
    "fixes-not-tried",
    "not-diagnosed",
    "over-budget",
    "fix-not-applicable",
    "files-written",
    "same-process",
    # Read from a file of schema 1, which has texts alone.
    "schema-1",
]


class Note(Record, frozen=True, kw_only=True):
    """One remark. Nothing matches its text. `detail` is more than one line, a traceback."""

    code: Code
    text: str
    detail: str | None = None
