"""The diagnosis: everything known about a step; it is saved, loaded, compared and rendered."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Literal

import msgspec

from boundby.model.machine import Bound, Machine
from boundby.model.note import Note
from boundby.model.precision import UNTOLD, Precision
from boundby.model.record import DIAGNOSIS_SCHEMA, Record
from boundby.model.run import RunParts
from boundby.model.step_kind import Mode, StepUnit

GroupName = Literal["compute", "bandwidth", "overhead", "unknown"]
ClassName = Literal[
    "contraction", "normalization", "elementwise", "movement", "communication", "unknown"
]


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

    `unit`: what one step contains, where that was seen.
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
    profiled_ns: float | None = None  # with a profiler, where `wall_ns` is an estimate without it
    inferred_share: float = 0.0  # share of the wall that was divided in the profile's proportions
    others: list[KindOfStep] = []
    unit: StepUnit | None = None


class Group(Record, frozen=True, kw_only=True):
    """A part of the step. `excess_ns` is the time of its kernels above their roofline minimum."""

    ns: float = 0.0
    share: float = 0.0
    excess_ns: float | None = None
    parts: dict[str, float] = {}


class Account(Record, frozen=True, kw_only=True):
    """The whole step time, divided into four groups."""

    compute: Group
    bandwidth: Group
    overhead: Group
    unknown: Group

    def groups(self) -> dict[GroupName, Group]:
        return {
            "compute": self.compute,
            "bandwidth": self.bandwidth,
            "overhead": self.overhead,
            "unknown": self.unknown,
        }


class Verdict(Record, frozen=True, kw_only=True):
    """What the step is bound by. Without `if_free`, it is the largest group alone.

    `or_bound_by` is what it is bound by at the other end of the interval of the step's time.
    """

    bound_by: GroupName
    or_bound_by: GroupName | None = None
    uncertain: bool = False
    if_free: dict[str, float] = {}
    why: str = ""


class Utilisation(Record, frozen=True, kw_only=True):
    """The used share of the device, against measured roofs and against the datasheet.

    `at_least`: part of the arithmetic is unknown, so MFU and HFU are lower bounds. `costed` is the
    share of device time of known cost, `classified` that of known cost or class.
    """

    mfu: float | None = None
    hfu: float | None = None
    mfu_datasheet: float | None = None
    hfu_datasheet: float | None = None
    bandwidth: float | None = None
    device: float | None = None
    host_lead_ns: float | None = None
    at_least: bool = False
    costed: float | None = None
    classified: float | None = None


class DecodeLimit(Record, frozen=True, kw_only=True):
    """What a step of inference reads at least, and how long the device's memory takes for it.

    `passes` is how often the weights are read, by `tokens` at a time, None if unknown; `experts` of
    each layer then. `weight_bytes` and `kv_bytes` are of all passes; `kv_bytes` is None where no
    attention operator of known shapes was seen. `ranks` share the weights. `share` is the limit
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


class ClassRow(Record, frozen=True, kw_only=True):
    """A class of operators: its share of the FLOPs and its share of the time."""

    name: ClassName = msgspec.field(name="class")
    flops_share: float
    time_share: float
    ns: float
    flops_per_s: float | None = None
    slower_than_contractions: float | None = None


class KernelClassRow(Record, frozen=True, kw_only=True):
    """Device time of one class of kernels, which their names tell; "unknown" where they do not.

    `costed_ns` is the part of it that belongs to operators of known cost; `dtypes` the time of the
    kernels whose name tells a dtype, by dtype.
    """

    kernel_class: str = msgspec.field(name="class")
    ns: float = 0.0
    share: float = 0.0
    costed_ns: float = 0.0
    kernels: int = 0
    dtypes: dict[str, float] = {}


class OpRow(Record, frozen=True, kw_only=True):
    """All calls of one operator, at one line, on one set of shapes; `module` contains them all.

    `inside` is the library line, if the user's line called into a library. `median_ns` and
    `deviation_ns` (standard) are of one call.
    """

    name: str
    op_class: ClassName = msgspec.field(name="class")
    where: str | None = None
    inside: str | None = None
    module: str | None = None
    phase: str | None = None
    shapes: str = ""
    dtype: str | None = None
    count: int
    ns: float
    median_ns: float | None = None
    deviation_ns: float | None = None
    floor_ns: float | None = None
    excess_ns: float | None = None
    flops: float | None = None
    bytes: float | None = None
    bound: Bound
    roof_fraction: float | None = None
    roof_suspect: bool = False
    upper_bound: bool = False


# The place of time that belongs to no line of the user's.
NO_LINE = "unknown"


class CallerRow(Record, frozen=True, kw_only=True):
    """A line's time in calls from one place; `count` is how often its function was called there."""

    where: str
    ns: float
    count: int


class LineRow(Record, frozen=True, kw_only=True):
    """A source line with all of its time, forward and backward, operators and overhead.

    The lines add up to the step. `groups` are the account's, `parts` those of its groups that have
    any. `inside` are the lines of libraries that it led to, the longest first. `callers` divide it
    by the lines that called its function. `advice`: what it does, what bounds it, what could be
    done; of the costliest line. Of a module it is the work alone.
    """

    where: str
    text: str | None = None
    function: str | None = None  # around it: "Block.forward"
    ns: float
    share: float
    floor_ns: float | None = None
    groups: dict[str, float] = {}
    parts: dict[str, float] = {}
    inside: list[LineRow] = []
    callers: list[CallerRow] = []
    advice: str = ""


class CollectiveRow(Record, frozen=True, kw_only=True):
    """All collectives of one name and message size."""

    name: str
    bytes: float | None = None
    count: int
    ns: float
    exposed_ns: float  # not overlapped with kernels
    bytes_per_s: float | None = None


class RankRow(Record, frozen=True, kw_only=True):
    """One rank of a job. `waiting_ns`: time inside collectives waiting for later ranks."""

    rank: int
    name: str
    wall_ns: float
    device_busy_ns: float | None = None
    groups: dict[str, float] = {}
    communication_ns: float = 0.0
    exposed_ns: float = 0.0
    waiting_ns: float | None = None
    problem: str | None = None


class LaunchRow(Record, frozen=True, kw_only=True):
    """An operator's launches: medians of the delay from the launch to the start of the
    kernel, and of the kernel; `short` kernels take less time than launching them."""

    name: str
    kernels: int
    delay_ns: float
    kernel_ns: float
    shortest_ns: float
    short: int
    ns: float


class LaunchQueue(Record, frozen=True, kw_only=True):
    """How many launches waited on the device when another was made, and the host's time in
    launches that waited for room."""

    median: float
    longest: int
    blocked_ns: float


class SequenceRow(Record, frozen=True, kw_only=True):
    """Short kernels that run one after the other `count` times, with their time."""

    kernels: list[str]
    count: int
    ns: float


class IdleRow(Record, frozen=True, kw_only=True):
    """A cause of device idle time: the call and its line."""

    cause: str
    name: str
    where: str | None = None
    ns: float  # of the simulated step; for a trace, of the profiled one


PathPart = Literal["host", "data", "latency", "kernel", "gap"]


class CriticalPathRow(Record, frozen=True, kw_only=True):
    """A part of the step's critical path: segments that the step's end waited for, of one
    operator or of the host, at one line. Shares are of the whole path."""

    kind: PathPart
    what: str
    where: str | None = None
    count: int
    ns: float
    share: float


class SlackRow(Record, frozen=True, kw_only=True):
    """Device work of one operator at one line that is not on the critical path.

    `slack_ns`: any one of its calls could take so much longer, and more, without a longer step.
    """

    what: str
    where: str | None = None
    count: int
    ns: float
    slack_ns: float


LaneKind = Literal["host", "stream", "idle"]


class Slice(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of the timeline, for the page and for Perfetto, from the step's start.

    `number` is the thread of the host or the stream of the device; `op` indexes the diagnosis'
    operators, `flow` the slice that launched this one; `cause` says why an idle device idles, and
    of a host slice that it launches, syncs or waits for data.
    """

    lane: LaneKind
    number: int = 0
    name: str
    start_ns: float
    ns: float
    op: int | None = None
    bound: str | None = None
    floor_ns: float | None = None
    where: str | None = None
    cause: str | None = None
    flow: int | None = None


class Estimate(Record, frozen=True, kw_only=True):
    low: float
    expected: float
    high: float


FindingKind = Literal["mistake", "tuning", "note"]
RelativeTo = Literal["step", "run", "samples"]


class Finding(Record, frozen=True, kw_only=True):
    """A fault, where it is, and what fixing it would save.

    `summary`, `why` and `when_not` come from the fault's documentation, so that a report needs no
    fault. `fixes` are the ids of the fixes for it on this device, the one that `change` asks for
    first. `also` are faults that the same fix removes, whose saving is within this one's. `inside`
    are the lines of libraries that the user's lines lead to. `relative_to` is what the saving is a
    share of, `out_of` the same in words: a larger batch makes no step shorter. `evidence` is what
    was seen that makes it certain. `grows`: it takes more with every step, such as memory until it
    is full, whatever it costs now. `static`: found by reading the source alone. `remark` explains a
    saving that looks odd.
    """

    fault: str
    title: str = ""
    kind: FindingKind = "tuning"
    group: GroupName
    where: list[str] = []
    inside: list[str] = []
    saving_ns: Estimate
    relative_to: RelativeTo = "step"
    out_of: str = "the step"
    change: str
    assumes: str = ""
    evidence: str = ""
    static: bool = False
    grows: bool = False
    remark: str = ""
    fixes: list[str] = []
    excludes: list[str] = []
    also: list[str] = []
    provable: bool = False
    summary: str = ""
    why: str = ""
    when_not: str = ""


class WhatIf(Record, frozen=True, kw_only=True):
    """Several faults fixed together: the predicted step time by group.

    Without faults it is the simulated unchanged step, which the others are compared with.
    `saving_ns`: less than that, where the step as it is may come to take longer or shorter too.
    """

    faults: list[str]
    wall_ns: Estimate
    saving_ns: Estimate | None = None
    groups: dict[str, float] = {}  # ns of the expected step by group


class BatchRow(Record, frozen=True, kw_only=True):
    """The predicted step with a larger batch.

    `saving_ns`: less than as many steps as they are.
    """

    factor: int
    wall_ns: Estimate
    saving_ns: Estimate | None = None


class ChipRow(Record, frozen=True, kw_only=True):
    """The same step and host on another chip of the datasheet table."""

    chip: str
    wall_ns: Estimate


class Speedup(Record, frozen=True, kw_only=True):
    """Time before over time after: median and 95% interval."""

    low: float
    median: float
    high: float


class Peak(Record, frozen=True, kw_only=True):
    """Peak memory in bytes."""

    before: float | None = None
    after: float | None = None


class Outcome(enum.StrEnum):
    """What came of trying a fix."""

    KEPT = "kept"
    NO_GAIN = "no gain"
    INCONCLUSIVE = "inconclusive"  # the interval does not decide; more time may
    UNVERIFIED = "unverified"  # faster, but nothing could be compared
    WRONG_NUMBERS = "wrong numbers"
    FAILED = "failed"
    SKIPPED = "skipped"  # not measured, and why

    @classmethod
    def _missing_(cls, value: object) -> Outcome | None:
        return cls.SKIPPED if value == "not run" else None  # the word of schema 1


class Numerics(Record, frozen=True, kw_only=True):
    """Whether the changed program still computes what it did.

    `tensor` is the one that is furthest off, with its relative error and the tolerance.
    """

    ok: bool
    why: str
    verified: bool = True  # False: nothing could be compared
    tensor: str | None = None
    error: float | None = None
    tolerance: float | None = None

    @property
    def outcome(self) -> Outcome:
        if not self.verified:
            return Outcome.UNVERIFIED
        return Outcome.KEPT if self.ok else Outcome.WRONG_NUMBERS


# Between the names of fixes that were applied together.
FIXES_JOINED = " + "


class Proof(Record, frozen=True, kw_only=True):
    """A fix applied from outside and measured: step times of blocks in turn, without and with it.

    `against` names the fixes that were applied on both sides; nothing for the program as it is.
    `fresh`: whole processes of the script in turn, instead of blocks of steps in one.
    """

    faults: list[str]
    treatment: str = ""
    against: str = ""
    fresh: bool = False
    before_ns: list[float] = []
    after_ns: list[float] = []
    speedup: Speedup | None = None
    predicted: Estimate | None = None  # as a speed-up
    peak_bytes: Peak = Peak()
    numerics: Numerics | None = None
    preparation_s: float | None = None  # its first use, such as compiling
    outcome: Outcome
    why: str = ""
    change: str = ""
    log: str | None = None
    open: bool = False  # more time may tell

    @property
    def combines(self) -> bool:
        """Whether it is several fixes together; one fix may mend several faults."""
        if not self.treatment:  # of a file that names none
            return len(self.faults) > 1
        return FIXES_JOINED in self.treatment


class Diagnosis(Record, frozen=True, kw_only=True):
    """Everything known about one step. `framework`: of the program; None if not recorded."""

    schema: int = DIAGNOSIS_SCHEMA
    target: str | None = None
    framework: Literal["torch", "jax"] | None = None
    machine: Machine
    step: StepTimes
    precision: Precision = UNTOLD
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
        """What a finding's saving is a share of: the step, or the run."""
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
