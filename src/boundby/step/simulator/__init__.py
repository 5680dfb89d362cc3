"""A step replayed: what the host issues, in-order streams, syncs; the time that comes out.

The host walks through its launches and waits; the device starts each piece of work at the latest
of: its stream is free, it was issued, what it waits for has ended. Changing durations and
replaying gives a counterfactual: what the step would take if something cost nothing.

Nothing is fitted to the step's wall time. Host times come from the profile, brought down to what
the host was measured to take, phase by phase, without a profiler. What is left between the
replayed and the clean wall is the replay's error, and is shown.
"""

from __future__ import annotations

from boundby.step.simulator.critical_path import PathKind, Segment, critical_path
from boundby.step.simulator.host_scaling import (
    explaining_host,
    with_clean_phases,
    with_host,
    with_wall,
)
from boundby.step.simulator.launch_sequence import LaunchSequence, Wait, build_launch_sequence
from boundby.step.simulator.simulate import issue_ns, replay, simulated_timeline
from boundby.step.simulator.slack import slack

__all__ = [
    "LaunchSequence",
    "PathKind",
    "Segment",
    "Wait",
    "build_launch_sequence",
    "critical_path",
    "explaining_host",
    "issue_ns",
    "replay",
    "simulated_timeline",
    "slack",
    "with_clean_phases",
    "with_host",
    "with_wall",
]
