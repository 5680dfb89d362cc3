"""How long the host is likely to take in another process than the one that was watched."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from boundby import units
from boundby.capture.live.recorder import Capture
from boundby.model import Machine

# The host's time for one script differs by this much between processes: interleaved runs of
# host-bound steps on an H200 spread by 15 to 20% around their middle.
_PROCESSES_DIFFER = 0.20
_MOST_SPREAD = 0.40
# From this ratio between slow and fast on, the host has two paces, not one and some noise.
_UNSTEADY = 1.4


def host_factors(
    capture: Capture,
    machine: Machine,
    *,
    wall_ns: float,
    issued_ns: float,
    explaining: float | None = None,
) -> tuple[float, float, float]:
    """Of the host's time as it was measured: what is likely, the least, and the most.

    Where the host sets the step's time, the likeliest is the one that explains it (`explaining`):
    so what it was off by leaves with the host once a change makes the device set the time. Else no
    host takes longer for a step than the step: one that was measured so was disturbed while it was
    measured. Where its pace was looked at all along, the usual one is likelier than the one that
    it had just then, and it may come to be as fast, or as slow, as it ever was.
    """
    spread = _spread(capture.issue)
    usual, fast, slow = _paces(capture, machine)
    likely = explaining or min(usual, wall_ns / max(issued_ns, 1.0))
    return likely, min(likely * (1 - spread), fast), max(likely * (1 + spread), slow)


def pace_of(capture: Capture, machine: Machine) -> float:
    """How long the host took for what it does while its steps were timed, beside the saved one."""
    saved = machine.overheads.python_add_ns
    if not saved or not capture.issue_pace:
        return 1.0
    return statistics.median(capture.issue_pace) / saved


def unsteady(capture: Capture) -> list[str]:
    """One line where the host's cores did not keep one pace."""
    if not capture.pace:
        return []
    fast, slow = (float(ns) for ns in np.percentile(capture.pace, [10, 90]))
    if slow < _UNSTEADY * fast:
        return []
    return [
        f"the host's cores changed their pace meanwhile, as shared ones do: an addition in Python "
        f"took {units.time(fast)} to {units.time(slow)}; what the host bounds varies as much"
    ]


def _paces(capture: Capture, machine: Machine) -> tuple[float, float, float]:
    """The usual pace, the fastest and the slowest, beside that of the steps that were timed."""
    if not capture.issue_pace:
        return 1.0, 1.0, 1.0
    then = statistics.median(capture.issue_pace)
    fast, slow = (float(ns) for ns in np.percentile(capture.pace, [10, 90]))
    saved = machine.overheads.python_add_ns
    fastest = fast if saved is None else min(fast, saved)
    return statistics.fmean(capture.pace) / then, fastest / then, slow / then


def _spread(issue: Sequence[dict[str, float]]) -> float:
    """By how much the host's time varies: from step to step, and from process to process."""
    totals = [sum(step.values()) for step in issue]
    if len(totals) < 2:
        return _PROCESSES_DIFFER
    reach = (max(totals) - min(totals)) / 2 / statistics.median(totals)
    return min(_MOST_SPREAD, max(_PROCESSES_DIFFER, reach))
