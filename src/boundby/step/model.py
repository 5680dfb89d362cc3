"""A step with all that is known of it, which can be imagined changed and replayed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from boundby.capture.host.counters import HostCounters
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import HostKind, Ints, Machine, OpCall, Timeline
from boundby.model.diagnosis import Account, LineRow
from boundby.step.dataflow import Flow, flow_of
from boundby.step.host_intervals import HostIntervals
from boundby.step.nesting import nearest
from boundby.step.op_record import OpRecord
from boundby.step.simulator import LaunchSequence, build_launch_sequence, replay, with_clean_phases

Floats = npt.NDArray[np.float64]
T = TypeVar("T")
# In float32 with what the matrix units leave of it, or cast to sixteen bits before.
MatmulPrecision = Literal["loose", "bfloat16"]
# A line with less than this share of what is spoken of is not named.
_COUNTS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is different in an imagined step; what is not named stays as it was.

    `work_ns`: a piece of work's new time, by its index; work that takes none is not there at all.
    `unfusible`: work that is a library's kernel now, which nothing is fused with.
    `host_ns`: host time before each action.
    `wait`: which actions still wait for the device. `gap_ns`: between backlogged kernels.
    `python_ns`: what is taken off the step outside its kernels, whatever they do meanwhile.
    `product_precision`: what float32 products are done in from now on, the step's attention too.
    `no_user_python`: nothing is left of what the script does itself, beside the model and torch.
    """

    work_ns: Mapping[int, float] = field(default_factory=dict)
    unfusible: frozenset[int] = frozenset()
    host_ns: Floats | None = None
    wait: npt.NDArray[np.int8] | None = None
    gap_ns: float | None = None
    after_ns: float | None = None
    python_ns: float = 0.0
    product_precision: MatmulPrecision | None = None
    no_user_python: bool = False


class Attributed(Protocol):
    """What a step model needs of a step that was divided into its operators."""

    @property
    def op_records(self) -> list[OpRecord]: ...
    @property
    def account(self) -> Account: ...
    @property
    def lines(self) -> list[LineRow]: ...
    @property
    def member(self) -> Ints: ...
    @property
    def where(self) -> HostIntervals: ...


class OperatorBenchmarks:
    """Single operators timed at the step's own shapes: what is known, and what was asked for.

    A first look at the step asks; the device answers, where it is at hand; a second look is told.
    """

    def __init__(self) -> None:
        self.known: dict[OpBenchmark, float] = {}
        self.asked: dict[OpBenchmark, None] = {}

    def ns(self, benchmark: OpBenchmark) -> float | None:
        self.asked[benchmark] = None
        return self.known.get(benchmark)


class StepModel:
    """A step, its machine, its account, and a replay that explains it."""

    def __init__(
        self,
        timeline: Timeline,
        machine: Machine,
        attribution: Attributed,
        *,
        wall_ns: float | None,
        phases: Mapping[str, float],
        host: Callable[[LaunchSequence], LaunchSequence] = lambda script: script,
        timings: OperatorBenchmarks | None = None,
        host_counters: HostCounters | None = None,
        in_phases_ns: float | None = None,
        cpu_contention: float = 1.0,
        samples: int | None = None,
    ) -> None:
        """`host` brings host times to what they are without a profiler, where phases cannot.

        `cpu_contention`: on a CPU, how many times as long work takes because others have its cores.
        `samples`: how many there are in a batch.
        `in_phases_ns` is what steps took, phase after phase, in which those were timed.
        `wall_ns` None: the clean step's time is not known, and its replay's stands for it.
        """
        self.timeline = timeline
        self.machine = machine
        self.host_counters = host_counters or HostCounters()
        self.op_records = attribution.op_records
        self.account = attribution.account
        self.line_rows = attribution.lines
        self.wall_ns = float(timeline.wall_ns) if wall_ns is None else wall_ns
        self.script: LaunchSequence | None = None
        self.timings = timings or OperatorBenchmarks()
        self.unfusible: frozenset[int] = frozenset()
        self.product_precision: MatmulPrecision | None = None
        self.no_user_python = False
        self._known: dict[Callable[[StepModel], Any], Any] = {}
        self._off_ns = 0.0
        self.phases = dict(phases)
        self._in_phases_ns = in_phases_ns
        self.cpu_contention = cpu_contention
        self.samples = samples
        self._member = attribution.member
        self.where = attribution.where
        if len(timeline.device):
            script = build_launch_sequence(
                timeline, gap_ns=machine.overheads.gap_ns(timeline.device.duration_ns)
            )
            self.script = host(with_clean_phases(script, dict(phases)) if phases else script)
        self.base_ns = self.replay(Edit())
        if wall_ns is None:
            self.wall_ns = self.base_ns

    @property
    def on_device(self) -> bool:
        return self.script is not None

    @property
    def replay_error(self) -> float | None:
        """How far the unchanged step's replay is off the clean one, as a share of it.

        On a CPU nothing runs beside the host: its phases follow each other, as they took.
        """
        replayed = self.base_ns if self.script is not None else self._in_phases_ns
        return None if replayed is None else replayed / self.wall_ns - 1

    def replay(self, change: Edit) -> float:
        """The step's time with the change made."""
        if self.script is None:
            saved = sum(
                self.op_records[index].exposed_ns - ns for index, ns in change.work_ns.items()
            )
            return max(1.0, self.wall_ns - self.cpu_contention * saved - change.python_ns)
        off = self._off_ns + change.python_ns
        return max(1.0, replay(self._changed(self.script, change)) - off)

    def saving(self, change: Edit) -> float:
        """How much of the clean step's time the change would save, in ns.

        The replay may be off the clean step; the saving is taken as a share of what was replayed.
        """
        return self.wall_ns * (1 - self.replay(change) / self.base_ns)

    def after(self, change: Edit) -> StepModel:
        """The picture once the change is made, in which further changes can be imagined.

        Times of the clean step as a whole stay those of this one: savings add up from here.
        """
        changed = copy.copy(self)
        changed.op_records = list(self.op_records)
        for index, ns in change.work_ns.items():
            work = copy.copy(self.op_records[index])
            work.exposed_ns *= ns / work.ns if work.ns else 1.0
            work.ns = ns
            changed.op_records[index] = work
        changed.unfusible = self.unfusible | change.unfusible
        changed.product_precision = change.product_precision or self.product_precision
        changed.no_user_python = change.no_user_python or self.no_user_python
        if self.script is None:
            changed.wall_ns = self.replay(change)
        else:
            changed.script = self._changed(self.script, change)
            changed._off_ns += change.python_ns
        return changed

    @property
    def flow(self) -> Flow | None:
        """Who makes what for whom; None where memory was not recorded."""
        return self.memoised(_flow)

    def is_for_data(self, work: OpRecord) -> bool:
        """Whether it is done to make a batch: nothing that is done to the model reaches it."""
        return work.row >= 0 and bool(self.memoised(_rows_for_data)[work.row])

    def memoised(self, work_out: Callable[[StepModel], T]) -> T:
        """What the timeline and the machine alone tell, worked out once for this picture and for
        all that are imagined from it."""
        if work_out not in self._known:
            self._known[work_out] = work_out(self)
        found: T = self._known[work_out]
        return found

    def stall_sensitivity(self, ns: float) -> float:
        """The share of a pause of the host, in the middle of the step, that the step is longer by.

        A device with enough work queued goes on through it.
        """
        if self.script is None or ns <= 0 or not len(self.script.host_ns):
            return 1.0
        host = self.script.host_ns.copy()
        host[len(host) // 2] += ns
        longer = replay(replace(self.script, host_ns=host)) - replay(self.script)
        return min(1.0, max(0.0, longer / ns))

    def _changed(self, script: LaunchSequence, change: Edit) -> LaunchSequence:
        device = script.device_ns
        if change.work_ns:
            factor = np.ones(len(self.op_records))
            for index, ns in change.work_ns.items():
                factor[index] = ns / self.op_records[index].ns if self.op_records[index].ns else 1.0
            device = device * factor[self._member[script.order]]
        return replace(
            script,
            device_ns=device,
            host_ns=script.host_ns if change.host_ns is None else change.host_ns,
            wait=script.wait if change.wait is None else change.wait,
            gap_ns=script.gap_ns if change.gap_ns is None else change.gap_ns,
            after_ns=script.after_ns if change.after_ns is None else change.after_ns,
        )

    def shortened(self, work_ns: Mapping[int, float], *, launches: float = 1.0) -> Edit:
        """Some work takes less time, and the host spends a smaller share of its own on it."""
        saved = (1 - launches) * len(work_ns)
        if self.script is None:
            eager = self.machine.overheads.eager_op_ns or 0.0
            return Edit(work_ns=work_ns, python_ns=saved * eager)
        host = self.script.host_ns.copy()
        host[self.actions_of(work_ns)] *= launches
        return Edit(work_ns=work_ns, host_ns=host)

    def call(self, work: OpRecord) -> OpCall | None:
        return self.timeline.calls[work.call] if work.call >= 0 else None

    def within(self, *parts: str) -> npt.NDArray[np.bool_]:
        """Which host rows lie inside an event whose name contains one of these, or are one."""
        names = self.timeline.names
        named = np.array([any(part in name for part in parts) for name in names] or [False])
        return self.inside(named[self.timeline.host.name])

    def inside(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which host rows lie inside some others, or are among them."""
        found: npt.NDArray[np.bool_] = nearest(self.timeline.host.parent, wanted) >= 0
        return found

    def inside_both_ways(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which host rows lie inside some others, or in the backward of what does: that has rows of
        its own, each with the operator that it belongs to."""
        host, inside = self.timeline.host, self.inside(wanted)
        return inside | self.inside((host.forward >= 0) & inside[host.forward])

    def work_of(self, event: int) -> int:
        """The piece of work that a device event belongs to."""
        return int(self._member[event])

    def lines(self, op_records: Iterable[OpRecord]) -> list[str]:
        """The source lines of some work that count, the costliest first."""
        total: dict[int, float] = {}
        for work in op_records:
            total[work.source] = total.get(work.source, 0.0) + work.ns
        least = _COUNTS * sum(total.values())
        ranked = sorted((s for s in total if total[s] >= least), key=lambda source: -total[source])
        return [self.timeline.sources[s] for s in ranked if 0 <= s < len(self.timeline.sources)]

    def actions_of(self, indices: Iterable[int]) -> Ints:
        """The host actions that issue some pieces of work."""
        if self.script is None:
            return np.empty(0, np.int64)
        wanted = np.isin(self._member[self.script.order], list(indices))
        work = np.flatnonzero(wanted)
        return np.unique(np.searchsorted(self.script.first, work, side="right") - 1)


def _flow(step_model: StepModel) -> Flow | None:
    return flow_of(step_model.timeline, step_model.op_records)


def _rows_for_data(step_model: StepModel) -> npt.NDArray[np.bool_]:
    return step_model.inside(step_model.timeline.host.kind == HostKind.DATA)
