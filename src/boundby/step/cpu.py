"""A step on a CPU: one thread runs operator after operator, so their times add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from boundby.model import Machine, Timeline
from boundby.step.edit import Edit, HostTime
from boundby.step.model import Attributed, StepModel
from boundby.step.simulator import LaunchSequence


class CpuStep(StepModel):
    """A step on a CPU. Nothing overlaps with the host: every saving shortens the step."""

    device = "cpu"
    # Caches, clocks and memory of a CPU differ more between a step and a benchmark: assumed to be
    # twice as uncertain, on a logarithmic scale.
    benchmark_doubt = 2.0

    def __init__(
        self,
        timeline: Timeline,
        machine: Machine,
        attribution: Attributed,
        *,
        wall_ns: float | None,
        phases: Mapping[str, float],
        in_phases_ns: float | None = None,
        **known: Any,
    ) -> None:
        """`in_phases_ns`: the time of the steps that were timed phase by phase."""
        super().__init__(
            timeline,
            machine,
            attribution,
            launches=LaunchSequence.empty(),
            wall_ns=float(timeline.wall_ns) if wall_ns is None else wall_ns,
            phases=phases,
            **known,
        )
        self._in_phases_ns = in_phases_ns
        self.base_ns = self.evaluate(Edit())

    @property
    def replay_error(self) -> float | None:
        return None if self._in_phases_ns is None else self._in_phases_ns / self.wall_ns - 1

    @property
    def data_wait(self) -> HostTime:
        """The wait for data, with the waits for a core that would end with it; a sleeping process
        waits for no core."""
        data = self.account.overhead.parts.get("data", 0.0)
        asleep = min(data, self.wall_ns * self.host_counters.sleep_share)
        return HostTime(after_ns=self.cpu_contention * (data - asleep) + asleep)

    @property
    def without_host(self) -> Edit:
        return Edit.save_host(HostTime(after_ns=self.account.overhead.ns))

    def evaluate(self, edit: Edit) -> float:
        saved = sum(self.op_records[index].exposed_ns - ns for index, ns in edit.op_ns.items())
        dispatch_ns = self.machine.overheads.eager_op_ns or 0.0
        host = edit.host_saved.after_ns - sum(ns for _, ns in edit.host_added)
        host += dispatch_ns * sum(1 - share for share in edit.launch_share.values())
        return max(1.0, self.wall_ns - self.cpu_contention * saved - host - edit.saved_ns)

    def stall_sensitivity(self, ns: float) -> float:
        return 1.0

    def _edit_execution(self, edited: Self, edit: Edit) -> None:
        edited.wall_ns = self.evaluate(edit)
