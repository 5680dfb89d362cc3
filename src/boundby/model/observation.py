"""The observation of one step, which every source makes.

A source (a live run, a trace file, a saved observation) makes it; analysis, faults and reports use
it, and do not know the source. None means unknown.
"""

from __future__ import annotations

from typing import Literal

from boundby.model.diagnosis import KindOfStep
from boundby.model.evidence import StepEvidence
from boundby.model.host_counters import HostCounters
from boundby.model.jax_facts import JaxFacts
from boundby.model.note import Note
from boundby.model.precision import UNKNOWN_PRECISION, Precision
from boundby.model.record import Record
from boundby.model.run import RunParts
from boundby.model.step_kind import StepKind
from boundby.model.timeline import Timeline

# The source of the step's time: the median of steps without a profiler, after warm-up or only
# during it; a time that the user gave; or unknown, because only profiled steps were seen.
WallSource = Literal["clean", "warm-up", "given", "profiled"]


class ObservedDevice(Record, frozen=True, kw_only=True):
    """The device of the step. `index` is its number on this machine; None: observed elsewhere.

    A device without a name may have its vendor and its number of processors (streaming
    multiprocessors, compute units).
    """

    kind: str = "cpu"  # "cpu", "cuda", "hip", "tpu"
    index: int | None = None
    name: str | None = None
    memory_bytes: int | None = None
    vendor: str | None = None
    processors: int | None = None


class StepTiming(Record, frozen=True, kw_only=True):
    """The kind of step and its time.

    `wall_ns` is the step's time without a profiler; None if only profiled steps were seen: the
    analysis then finds an interval. `samples_ns` are the steps whose median it is, or the profiled
    steps of a trace. `phases` is the host time to issue each phase from an idle device, `issue` the
    same for each step measured this way.
    """

    kind: StepKind
    wall_source: WallSource
    wall_ns: float | None = None
    samples_ns: list[float] = []
    phases: dict[str, float] = {}
    issue: list[dict[str, float]] = []
    others: list[KindOfStep] = []


class ProfiledStep(Record, frozen=True, kw_only=True):
    """Counters of the profiled step: the time it waited for a CPU core, and the pages of memory
    that the system gave it."""

    cpu_wait_ns: float = 0.0
    fresh_pages: int | None = None


class HostSpeed(Record, frozen=True, kw_only=True):
    """The time of an addition in Python, between steps: in the whole run, and in the steps in which
    `phases` were measured."""

    addition_ns: list[float] = []
    issue_addition_ns: list[float] = []


class Settings(Record, frozen=True, kw_only=True):
    """Settings of the process. `float32`: the dtype allowed for float32 products, by device kind.
    `versions`: of the framework and its libraries, by name."""

    float32: dict[str, Precision] = {}
    threads: int | None = None
    versions: dict[str, str] = {}

    def precision(self, device: str) -> Precision:
        return self.float32.get(device, UNKNOWN_PRECISION)


class RankInfo(Record, frozen=True, kw_only=True):
    """The rank of a process in a job."""

    rank: int
    world: int | None = None


class SourceLine(Record, frozen=True, kw_only=True):
    """A line of the program, and the function around it: "Block.forward"."""

    text: str
    function: str | None = None


class RepeatedCode(Record, frozen=True, kw_only=True):
    """An operator that a compiled program contains `count` times at one line of the user's.

    `depends`: the last copy needs the first one; otherwise they read one array in common. `lines`
    are all lines that the program contains about as often.
    """

    program: str
    line: str
    count: int
    depends: bool
    lines: list[str] = []


class ProgramMemory(Record, frozen=True, kw_only=True):
    """Bytes of device memory that a compiled program needs while it runs.

    `alias_bytes` are outputs in the memory of donated arguments. `peak_bytes` is everything
    allocated for it at once.
    """

    name: str
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temporary_bytes: int
    peak_bytes: int


class Observation(Record, frozen=True, kw_only=True):
    """One step of one process.

    `source` names what observed it: "torch", "jax" (live), "kineto", "xplane", "nsys", "rocprof"
    (files). `target` is the script or the file. `step` is None if no step was found; `seen` then
    counts what was, and `started` are commands that observe the scripts that it ran. `timeline` is
    None if no step was profiled. `lines` has the text of source lines, by "train.py:42".
    `programs` are the compiled programs that ran in the step, where the source knows their memory;
    `repeated` is code that they contain many times.
    """

    source: str
    framework: Literal["torch", "jax"]
    target: str | None = None
    device: ObservedDevice = ObservedDevice()
    step: StepTiming | None = None
    timeline: Timeline | None = None
    profiled: ProfiledStep = ProfiledStep()
    host: HostCounters | None = None
    host_speed: HostSpeed = HostSpeed()
    run: RunParts | None = None
    settings: Settings = Settings()
    rank: RankInfo | None = None
    lines: dict[str, SourceLine] = {}
    programs: list[ProgramMemory] = []
    repeated: list[RepeatedCode] = []
    jax: JaxFacts | None = None
    evidence: StepEvidence = StepEvidence()
    notes: list[Note] = []
    seen: dict[str, int] = {}
    started: list[str] = []
