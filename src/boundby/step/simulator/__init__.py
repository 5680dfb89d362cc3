"""Replays a step: the host's launches, in-order streams, syncs; returns the resulting time.

The host goes through its launches and waits. The device starts each piece of work when its stream
is free, it was issued, and what it waits for has ended. Changed durations give a counterfactual:
the step's time if something cost nothing.

Nothing is fitted to the step's wall time. Host times come from the profile, scaled phase by phase
to those measured without a profiler. The difference between the replayed and the clean wall is the
replay's error, and is shown.
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
