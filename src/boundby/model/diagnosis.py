"""The diagnosis: everything known about a step; it is saved, loaded, compared and rendered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from boundby.model.account import Account, Utilisation, Verdict
from boundby.model.finding import BatchRow, ChipRow, Finding, WhatIf
from boundby.model.machine import Machine
from boundby.model.note import Note
from boundby.model.precision import UNKNOWN_PRECISION, Precision
from boundby.model.proof import Proof
from boundby.model.record import DIAGNOSIS_SCHEMA, Record
from boundby.model.rows import (
    ClassRow,
    CollectiveRow,
    CriticalPathRow,
    IdleRow,
    KernelClassRow,
    LaunchQueue,
    LaunchRow,
    LineRow,
    OpRow,
    RankRow,
    SequenceRow,
    SlackRow,
    Slice,
)
from boundby.model.run import RunParts
from boundby.model.step_kind import Mode, StepUnit


class PhaseTime(Record, frozen=True, kw_only=True):
    """Host time to issue one phase of a step, starting with an idle device."""

    name: str
    host_issue_ns: float
    samples_ns: list[float] = []


class KindOfStep(Record, frozen=True, kw_only=True):
    """Another kind of step of the script; only the main kind is diagnosed."""

    kind: str  # for display
    mode: Mode = "step"
    steps: int
    wall_ns: float


class StepTimes(Record, frozen=True, kw_only=True):
    """The step time and how it was measured. `series` is the kind without the step's number.

    `unit`: the contents of one step, if seen.
    """

    kind: str
    series: str = ""
    wall_ns: float
    wall_source: Literal["clean", "profiled", "warm-up"]
    wall_interval_ns: tuple[float, float]
    samples_ns: list[float] = []
    phases: list[PhaseTime] = []
    device_busy_ns: float | None = None
    kernels: int = 0
    dilation: float | None = None  # profiled wall over clean wall
    replay_error: float | None = None
    profiled_ns: float | None = None  # with a profiler, if `wall_ns` is an estimate without it
    inferred_share: float = 0.0  # share of the wall that was divided in the profile's proportions
    others: list[KindOfStep] = []
    unit: StepUnit | None = None


class DecodeLimit(Record, frozen=True, kw_only=True):
    """The minimum bytes that a step of inference reads, and the time of the device's memory for
    them.

    `passes` is how often the weights are read, for `tokens` each time, None if unknown; `experts`
    those of each layer then. `weight_bytes` and `kv_bytes` are of all passes; `kv_bytes` is None if
    no attention operator of known shapes was seen. `ranks` share the weights. `share` is the limit
    over the step's time.
    """

    model: str
    passes: int = 1
    tokens: int | None = None
    experts: float | None = None
    ranks: int = 1
    weight_bytes: float
    kv_bytes: float | None = None
    limit_ns: float
    share: float


class Diagnosis(Record, frozen=True, kw_only=True):
    """Everything known about one step. `framework`: of the program; None if not recorded."""

    schema: int = DIAGNOSIS_SCHEMA
    target: str | None = None
    framework: Literal["torch", "jax"] | None = None
    machine: Machine
    step: StepTimes
    precision: Precision = UNKNOWN_PRECISION
    run: RunParts | None = None
    account: Account
    verdict: Verdict
    utilisation: Utilisation = Utilisation()
    decode_limit: DecodeLimit | None = None
    classes: list[ClassRow] = []
    kernel_classes: list[KernelClassRow] = []
    ops: list[OpRow] = []
    lines: list[LineRow] = []
    modules: list[LineRow] = []
    collectives: list[CollectiveRow] = []
    ranks: list[RankRow] = []
    idle: list[IdleRow] = []
    launches: list[LaunchRow] = []
    launch_queue: LaunchQueue | None = None
    sequences: list[SequenceRow] = []
    critical_path: list[CriticalPathRow] = []
    slack: list[SlackRow] = []
    timeline: list[Slice] = []
    findings: list[Finding] = []
    what_if: list[WhatIf] = []
    batches: list[BatchRow] = []
    bigger_chips: list[ChipRow] = []
    proofs: list[Proof] = []
    notes: list[Note] = []

    def whole_ns(self, finding: Finding) -> float:
        """The time that a finding's saving is a share of: the step, or the run."""
        is_of_run = finding.relative_to == "run" and self.run is not None
        return self.run.wall_ns if is_of_run and self.run else self.step.wall_ns

    def __str__(self) -> str:
        """Return the terminal report, if the report package is loaded."""
        render = renderers.get("text/plain")
        return render(self) if render else repr(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {mime: render(self) for mime, render in renderers.items()}


# Renderers by MIME type; registered by the report package, which this must not import.
renderers: dict[str, Callable[[Diagnosis], str]] = {}
