"""Rows of a diagnosis' tables: operators, lines, collectives, launches, slices of the timeline."""

from __future__ import annotations

from typing import Literal

import msgspec

from boundby.model.machine import Bound
from boundby.model.record import Record

ClassName = Literal[
    "contraction", "normalization", "elementwise", "movement", "communication", "unknown"
]


class ClassRow(Record, frozen=True, kw_only=True):
    """A class of operators: its share of the FLOPs and its share of the time."""

    name: ClassName = msgspec.field(name="class")
    flops_share: float
    time_share: float
    ns: float
    flops_per_s: float | None = None
    slower_than_contractions: float | None = None


class KernelClassRow(Record, frozen=True, kw_only=True):
    """Device time of one class of kernels, known from their names; "unknown" otherwise.

    `costed_ns` is the part of it that belongs to operators of known cost; `dtypes` the time by
    dtype of kernels with a dtype in their name.
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

    The lines add up to the step. `groups` are the account's, `parts` those of groups that have any.
    `inside` are the library lines that it led to, the longest first. `callers` divide it by the
    lines that called its function. `advice`, for the costliest line: what it does, what bounds it,
    what to do. For a module it contains the operators alone.
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
    """Launches queued on the device when another one was made (`median`, `longest`), and the host's
    time in launches that waited for room in the queue (`blocked_ns`)."""

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

    `slack_ns`: a lower bound of the time by which any one of its calls could become longer without
    lengthening the step.
    """

    what: str
    where: str | None = None
    count: int
    ns: float
    slack_ns: float


LaneKind = Literal["host", "stream", "idle"]


class Slice(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An interval of the timeline, for the page and for Perfetto, from the step's start.

    `number` is the thread of the host or the stream of the device; `op` indexes the diagnosis'
    operators, `flow` the slice that launched this one; `cause` says why the device is idle, and for
    a host slice that it launches, syncs or waits for data.
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
