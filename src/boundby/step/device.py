"""A step on a device: simulates a host that issues kernels into streams.

XLA's operators on a CPU are such a step as well. There the host shares the cores with them: host
time that the simulation hides behind them still takes its part of the cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from boundby.model import Machine, Timeline
from boundby.step.edit import Edit, HostTime
from boundby.step.model import Attributed, StepModel
from boundby.step.simulator import (
    LaunchSequence,
    Wait,
    build_launch_sequence,
    replay,
    with_clean_phases,
)


def _issuing_ns(launches: LaunchSequence) -> float:
    return float(launches.host_ns.sum()) + launches.after_ns


class DeviceStep(StepModel):
    """The host issues kernels into in-order streams; the simulation gives the step's time."""

    device = "cuda"
    benchmark_doubt = 1.0

    def __init__(
        self,
        timeline: Timeline,
        machine: Machine,
        attribution: Attributed,
        *,
        wall_ns: float | None,
        phases: Mapping[str, float],
        host: Callable[[LaunchSequence], LaunchSequence] = lambda launches: launches,
        launches: LaunchSequence | None = None,
        **known: Any,
    ) -> None:
        """`host` scales host times to those without a profiler, if `phases` does not. `launches`:
        those of an estimated step, of which nothing but the profile and `wall_ns` is known.
        `wall_ns` None: the clean step's time is unknown, and the simulated time is used instead."""
        is_estimated = launches is not None
        if launches is None:
            gap_ns = machine.overheads.gap_ns(timeline.device.duration_ns)
            launches = build_launch_sequence(timeline, gap_ns=gap_ns)
            if phases:
                launches = with_clean_phases(launches, dict(phases))
        launches = host(launches)
        if timeline.device_kind == "cpu":
            # A profiler slows a CPU's operators as well, not only the host that issues them.
            launches = replace(launches, device_ns=launches.device_ns * attribution.scaled)
        super().__init__(
            timeline,
            machine,
            attribution,
            launches=launches,
            wall_ns=float(timeline.wall_ns) if wall_ns is None else wall_ns,
            phases=phases,
            **known,
        )
        self._saved_ns = self._shared_ns = 0.0
        self._cores = self._shared_cores()
        self.base_ns = 0.0
        # The device's busy time of an estimated step, and of what it is a share.
        exposed = (record.exposed_ns for record in self.op_records if is_estimated)
        self._busy_ns = float(sum(exposed))
        self._whole_ns = max(self.wall_ns, self._busy_ns, 1.0)
        self.base_ns = self.evaluate(Edit())
        if wall_ns is None:
            self.wall_ns = self.base_ns

    @property
    def replay_error(self) -> float | None:
        return self.base_ns / self.wall_ns - 1

    @property
    def data_wait(self) -> HostTime:
        return HostTime(before_ns=self.launches.data_wait_ns)

    @property
    def without_host(self) -> Edit:
        launches = self.launches
        return Edit.save_host(HostTime(before_ns=launches.host_ns, after_ns=launches.after_ns))

    def evaluate(self, edit: Edit) -> float:
        edited, saved = self._edited(edit), self._saved_ns + edit.saved_ns
        # Each stream executes its kernels one after the other, in any edit.
        busy = np.bincount(edited.stream, edited.device_ns).max(initial=1.0) if saved else 1.0
        least, replayed = max(busy, self._least_ns(edit)), replay(edited)
        wall = max(least, replayed - saved)
        if self._cores is not None:
            # What operators hid of a saving took its share of their cores.
            wall -= max(0.0, saved - max(0.0, replayed - wall)) / self._cores
        return float(wall - self._shared_ns - self._freed_ns(edited))

    def _shared_cores(self) -> int | None:
        """How many cores XLA's operators share with the host; None on a device of its own."""
        if self.timeline.device_kind != "cpu" or self.observation is None:
            return None
        return self.observation.settings.threads

    def _freed_ns(self, edited: LaunchSequence) -> float:
        """By how much faster operators are without the removed host time that they hid: its share
        of the cores; less that of the host time that they hide where it no longer waits."""
        if self._cores is None:
            return 0.0
        waiting = replay(replace(edited, wait=self.launches.wait))
        hidden = max(0.0, waiting - replay(edited))
        saved = _issuing_ns(self.launches) - _issuing_ns(edited)
        if saved <= 0:
            return -hidden / self._cores
        seen = replay(self.launches) - replay(replace(edited, device_ns=self.launches.device_ns))
        return (max(0.0, saved - seen) - hidden) / self._cores

    def _least_ns(self, edit: Edit) -> float:
        """Kernels that did not overlap before an edit do not overlap after it: the device is busy
        for the same share of the step, except for the time that the edit takes from operators. Of a
        step that was measured without a profiler, the simulation alone decides."""
        if not self._busy_ns or (edit.gap_ns is not None and edit.gap_ns < 0):
            return 0.0
        return self.base_ns * (self._busy_ns - self._removed_ns(edit)) / self._whole_ns

    def _removed_ns(self, edit: Edit) -> float:
        edited = ((self.op_records[index], ns) for index, ns in edit.op_ns.items())
        return sum(record.exposed_ns * (1 - ns / record.ns) for record, ns in edited if record.ns)

    def stall_sensitivity(self, ns: float) -> float:
        launches = self.launches
        if ns <= 0 or not len(launches.host_ns):
            return 1.0
        host = launches.host_ns.copy()
        host[len(host) // 2] += ns
        longer = replay(replace(launches, host_ns=host)) - replay(launches)
        share = min(1.0, max(0.0, longer / ns))
        return share if self._cores is None else share + (1 - share) / self._cores

    def _edit_execution(self, edited: Self, edit: Edit) -> None:
        edited.launches = self._edited(edit)
        edited._saved_ns += edit.saved_ns
        edited._shared_ns += self._freed_ns(edited.launches)
        edited._busy_ns -= self._removed_ns(edit)

    def _edited(self, edit: Edit) -> LaunchSequence:
        """The launch sequence with the edit made; operator times are not edited yet."""
        launches = self.launches
        device = launches.device_ns
        if edit.op_ns:
            factor = np.ones(len(self.op_records))
            for index, ns in edit.op_ns.items():
                factor[index] = ns / self.op_records[index].ns if self.op_records[index].ns else 1.0
            device = device * factor[self._member[launches.order]]
        host, after = launches.host_ns.copy(), launches.after_ns
        by_share: dict[float, list[int]] = defaultdict(list)
        for index, share in edit.launch_share.items():
            by_share[share].append(index)
        for share, ops in by_share.items():
            host[self.actions_of(ops)] *= share
        if len(edit.host_saved.before_ns):
            host -= edit.host_saved.before_ns
        for added_before, ns in edit.host_added:
            host[self.actions_of(added_before)[:1]] += ns
        wait = launches.wait
        if edit.dropped_waits:
            wait = wait.copy()
            wait[list(edit.dropped_waits)] = Wait.NOTHING
        return replace(
            launches,
            device_ns=device,
            host_ns=host,
            wait=wait,
            after_ns=after - edit.host_saved.after_ns,
            gap_ns=launches.gap_ns if edit.gap_ns is None else edit.gap_ns,
        )
