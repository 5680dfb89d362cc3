"""A step with all that is known about it, and its time after an edit.

`StepView` is what a fault sees: operators, launches, machine, host counters, benchmarks. A
`StepModel` also evaluates edits. There are two: `DeviceStep` simulates the host and the streams of
a device, `CpuStep` adds up a step that one thread executes. `build_step_model` chooses, once.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import HostKind, Ints, Machine, OpCall, Timeline
from boundby.model.account import Account
from boundby.model.evidence import StepEvidence
from boundby.model.host_counters import HostCounters
from boundby.model.observation import Observation
from boundby.model.rows import LineRow
from boundby.model.run import RunParts
from boundby.step.dataflow import Flow, flow_of
from boundby.step.edit import Edit, Floats, HostTime, MatmulPrecision
from boundby.step.host_intervals import HostIntervals
from boundby.step.nesting import nearest
from boundby.step.op_record import OpRecord
from boundby.step.simulator import LaunchSequence

__all__ = [
    "Attributed",
    "Edit",
    "Floats",
    "HostTime",
    "MatmulPrecision",
    "OperatorBenchmarks",
    "StepModel",
    "StepView",
]

T = TypeVar("T")
# Source lines with a smaller share of the time in question are not named.
_COUNTS = 0.01


class Attributed(Protocol):
    """The parts of a step's attribution that a step model needs."""

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
    @property
    def scaled(self) -> float:
        """The factor by which the operators' times were scaled down to fit the clean step."""
        ...


class OperatorBenchmarks:
    """Single operators timed at the step's own shapes: the results, and the requests.

    The first pass over the faults collects the operators to benchmark; the second, on a machine
    with the device, uses the results.
    """

    def __init__(self) -> None:
        self.results: dict[OpBenchmark, float] = {}
        self.requested: dict[OpBenchmark, None] = {}

    def ns(self, benchmark: OpBenchmark) -> float | None:
        self.requested[benchmark] = None
        return self.results.get(benchmark)


class StepView(ABC):
    """A step as faults see it: its operators and launches, the machine, the host counters.

    `device`: where its operators run. `benchmark_doubt`: the exponent of every factor by which an
    operator's time inside the step may differ from its benchmark.
    """

    device: ClassVar[str]
    benchmark_doubt: ClassVar[float]
    base_ns: float  # the simulated time of the unchanged step

    def __init__(
        self,
        timeline: Timeline,
        machine: Machine,
        attribution: Attributed,
        *,
        launches: LaunchSequence,
        wall_ns: float,
        phases: Mapping[str, float],
        timings: OperatorBenchmarks | None = None,
        host_counters: HostCounters | None = None,
        cpu_contention: float = 1.0,
        samples: int | None = None,
        run: RunParts | None = None,
        observation: Observation | None = None,
    ) -> None:
        """`cpu_contention`: on a CPU, the factor by which other processes slow its operators.
        `samples`: the batch size. `launches` is empty for a CPU step. `run`: the parts of the whole
        run. `observation`: everything else that is known about the program, such as its settings.
        """
        self.timeline = timeline
        self.machine = machine
        self.launches = launches
        self.host_counters = host_counters or HostCounters()
        self.op_records = attribution.op_records
        self.account = attribution.account
        self.line_rows = attribution.lines
        self.where = attribution.where
        self.wall_ns = wall_ns
        self.phases = dict(phases)
        self.timings = timings or OperatorBenchmarks()
        self.cpu_contention = cpu_contention
        self.samples = samples
        self.run = run
        self.observation = observation
        self.unfusible: frozenset[int] = frozenset()
        self.product_precision: MatmulPrecision | None = None
        self.no_user_python = False
        self._member = attribution.member
        self._known: dict[Callable[[Any], Any], Any] = {}

    @property
    @abstractmethod
    def data_wait(self) -> HostTime:
        """Host time in which the step waits for its next batch."""

    @abstractmethod
    def stall_sensitivity(self, ns: float) -> float:
        """The share of a pause of the host by which the step becomes longer.

        A device with enough queued work continues through a pause.
        """

    @property
    def framework(self) -> str:
        """The framework of the program: "torch" or "jax"."""
        return self.observation.framework if self.observation is not None else "torch"

    @property
    def evidence(self) -> StepEvidence:
        """Values and gradients seen in additional steps; nothing for a trace."""
        return self.observation.evidence if self.observation is not None else StepEvidence()

    @property
    def flow(self) -> Flow | None:
        """The values that operators pass to each other; None if memory was not recorded."""
        return self.memoised(_flow)

    def is_for_data(self, record: OpRecord) -> bool:
        """Whether the operator is part of making a batch."""
        return record.row >= 0 and bool(self.memoised(_rows_for_data)[record.row])

    def memoised(self, compute: Callable[[Any], T]) -> T:
        """Compute something that depends on the timeline and the machine alone; once for this step
        and all steps edited from it."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        value: T = self._known[compute]
        return value

    def call(self, record: OpRecord) -> OpCall | None:
        return self.timeline.calls[record.call] if record.call >= 0 else None

    def within(self, *parts: str) -> npt.NDArray[np.bool_]:
        """A mask of the host rows inside an event whose name contains one of these, that event
        included."""
        names = self.timeline.names
        named = np.array([any(part in name for part in parts) for name in names] or [False])
        return self.inside(named[self.timeline.host.name])

    def inside(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """A mask of the host rows inside some others, these included."""
        is_inside: npt.NDArray[np.bool_] = nearest(self.timeline.host.parent, wanted) >= 0
        return is_inside

    def inside_both_ways(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """A mask of the host rows inside some others or in their backward, which has rows of its
        own, each with the operator that it belongs to."""
        host, inside = self.timeline.host, self.inside(wanted)
        return inside | self.inside((host.forward >= 0) & inside[host.forward])

    def record_of(self, event: int) -> int:
        """The index of the operator that a device event belongs to."""
        return int(self._member[event])

    def lines(self, op_records: Iterable[OpRecord]) -> list[str]:
        """The source lines of some operators, the costliest first; lines with little time are left
        out."""
        total: dict[int, float] = {}
        for record in op_records:
            total[record.source] = total.get(record.source, 0.0) + record.ns
        least = _COUNTS * sum(total.values())
        ranked = sorted((s for s in total if total[s] >= least), key=lambda source: -total[source])
        return [self.timeline.sources[s] for s in ranked if 0 <= s < len(self.timeline.sources)]

    def scaled(self, indices: Iterable[int], share: float) -> Edit:
        """The edit in which these operators take a share of their time."""
        return Edit.set_time({index: share * self.op_records[index].ns for index in indices})

    def actions_of(self, indices: Iterable[int]) -> Ints:
        """The host actions that issue some operators; none on a CPU, or without host events."""
        wanted = np.isin(self._member[self.launches.order], list(indices))
        work = np.flatnonzero(wanted)
        actions = np.unique(np.searchsorted(self.launches.first, work, side="right") - 1)
        return actions[actions < len(self.launches.host_ns)]


class StepModel(StepView):
    """A step that can be edited, and its time after the edit."""

    @property
    @abstractmethod
    def replay_error(self) -> float | None:
        """The relative difference between the simulated and the clean step."""

    @property
    @abstractmethod
    def without_host(self) -> Edit:
        """The edit after which the host takes no time."""

    @abstractmethod
    def evaluate(self, edit: Edit) -> float:
        """The step's time in ns with the edit made."""

    @abstractmethod
    def _edit_execution(self, edited: Self, edit: Edit) -> None:
        """Apply the edit to the execution of the step; operator times are already edited."""

    def saving(self, edit: Edit) -> float:
        """The time by which the edit shortens the clean step, in ns.

        The simulated step may differ from the clean one; the saving is taken as a share of it.
        """
        return self.wall_ns * (1 - self.evaluate(edit) / self.base_ns)

    def apply(self, edit: Edit) -> Self:
        """The step after the edit, to which further edits can be made.

        `base_ns` stays unchanged: savings are cumulative.
        """
        edited = copy.copy(self)
        edited.op_records = list(self.op_records)
        for index, ns in edit.op_ns.items():
            record = copy.copy(self.op_records[index])
            record.exposed_ns *= ns / record.ns if record.ns else 1.0
            record.ns = ns
            edited.op_records[index] = record
        edited.unfusible = self.unfusible | edit.unfusible
        edited.product_precision = edit.product_precision or self.product_precision
        edited.no_user_python = edit.no_user_python or self.no_user_python
        self._edit_execution(edited, edit)
        return edited


def _flow(step: StepView) -> Flow | None:
    return flow_of(step.timeline, step.op_records)


def _rows_for_data(step: StepView) -> npt.NDArray[np.bool_]:
    return step.inside(step.timeline.host.kind == HostKind.DATA)
