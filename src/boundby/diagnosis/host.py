"""The host's expected speed in another process than the observed one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from boundby.analysis.account import Attribution
from boundby.model import Machine, Note, host_speed, units
from boundby.model.assumptions.host import PROCESS_SPREAD, UNSTEADY_SPEED
from boundby.model.host_counters import HostCounters
from boundby.model.observation import HostSpeed, StepTiming
from boundby.step.idle_causes import CPU_WAIT


def host_factors(
    step: StepTiming,
    speed: HostSpeed,
    *,
    wall_ns: float,
    issued_ns: float,
    explaining: float | None = None,
) -> tuple[float, float, float]:
    """Factors of the measured host time: likely, least, most.

    If the host limits the step, the likely factor is the one that explains its time (`explaining`),
    so that the error disappears once a change makes the device the limit. Otherwise the host cannot
    take longer than the step: a longer measured time was disturbed. If the host's speed was sampled
    during the run, the range includes its 10th and 90th percentile.
    """
    spread = _spread(step.issue)
    fast, slow = _speed_range(speed)
    likely = explaining or min(1.0, wall_ns / max(issued_ns, 1.0))
    return likely, likely * min(1 - spread, fast), likely * max(1 + spread, slow)


def slower_than_measured(speed: HostSpeed, machine: Machine) -> float:
    """The host's time when steps were timed over that when the machine was measured.

    Predicted host time comes from the machine's figures and is compared with this step's own.
    """
    then = machine.overheads.python_add_ns
    if not speed.issue_addition_ns or not then:
        return 1.0
    return host_speed.slower(statistics.median(speed.issue_addition_ns), then)


def cpu_contention(attribution: Attribution, seen: HostCounters, wall_ns: float) -> float:
    """The factor by which other processes that use a CPU's cores slow a step's work.

    The script's own processes are left out: they use cores in each step in any case.
    """
    parts = attribution.account.overhead.parts
    lost = parts.get(CPU_WAIT, 0.0)
    others_ns = max(0.0, lost - seen.worker_cpu_share * wall_ns)
    asleep = min(parts["data"], seen.sleep_share * wall_ns)
    return 1 + others_ns / max(1.0, wall_ns - lost - asleep)


def unsteady(speed: HostSpeed) -> list[Note]:
    """A note if the speed of the host's cores changed during the run."""
    if not speed.addition_ns:
        return []
    fast, slow = (float(ns) for ns in np.percentile(speed.addition_ns, [10, 90]))
    if slow < UNSTEADY_SPEED.value * fast:
        return []
    text = (
        f"the speed of the host's cores changed during the run: an addition in Python took "
        f"{units.time(fast)} to {units.time(slow)}; host-bound time varies accordingly"
    )
    return [Note(code="host-speed-varies", text=text)]


def _speed_range(speed: HostSpeed) -> tuple[float, float]:
    """The range of the host's speed, relative to that when steps were timed."""
    if not speed.issue_addition_ns:
        return 1.0, 1.0
    then = statistics.median(speed.issue_addition_ns)
    fast, slow = (float(ns) / then for ns in np.percentile(speed.addition_ns, [10, 90]))
    return fast, slow


def _spread(issue: Sequence[dict[str, float]]) -> float:
    """The variation of the host's time: from step to step, and from process to process."""
    totals = [sum(step.values()) for step in issue]
    if len(totals) < 2:
        return PROCESS_SPREAD.value
    reach = (max(totals) - min(totals)) / 2 / statistics.median(totals)
    return min(PROCESS_SPREAD.high, max(PROCESS_SPREAD.value, reach))
