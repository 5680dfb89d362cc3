"""Slack: how much longer each piece of device work could take without lengthening the step."""

from __future__ import annotations

import numpy as np

from boundby.model.assumptions.device import LAUNCH_QUEUE
from boundby.step.simulator.critical_path import previous_on_stream
from boundby.step.simulator.launch_sequence import Floats, LaunchSequence
from boundby.step.simulator.simulate import replay, steady_iteration


def slack(launches: LaunchSequence) -> Floats:
    """The slack of each piece of work in ns, in order of issue, in a loop's steady state.

    Computed backwards from the step's end, as the latest end of each piece of work that delays
    neither the next on its stream, nor work that depends on it, nor a host that waits for it. A
    lower bound.
    """
    work = len(launches.device_ns)
    if not work or not len(launches.host_ns):
        return np.zeros(work)
    times, end = steady_iteration(launches)
    device, gap = launches.device_ns.tolist(), launches.gap_ns
    first, depends = launches.first.tolist(), launches.depends.tolist()
    until = launches.until.tolist() if len(launches.until) else [-1] * len(launches.wait)
    previous = previous_on_stream(launches.stream)
    latest = _before_next_step(launches, times.started, replay(launches), end)
    everything, host = end, end - launches.after_ns
    for action in range(len(launches.host_ns) - 1, -1, -1):
        if launches.wait[action]:
            if until[action] >= 0:
                latest[until[action]] = min(latest[until[action]], host)
            else:
                everything = min(everything, host)
        for number in range(first[action + 1] - 1, first[action] - 1, -1):
            latest[number] = min(latest[number], everything)
            start = latest[number] - device[number]
            if (before := previous[number]) >= 0:
                latest[before] = min(latest[before], start - gap)
            if (needed := depends[number]) >= 0:
                latest[needed] = min(latest[needed], start)
            host = min(host, start - launches.latency_ns)
            if (made_room := int(number - LAUNCH_QUEUE.value)) >= 0:
                start_at_most = start - launches.latency_ns
                latest[made_room] = min(latest[made_room], start_at_most + device[made_room])
        host -= float(launches.host_ns[action])
    slack_ns: Floats = np.clip(np.array(latest) - np.asarray(times.ended), 0.0, None)
    return slack_ns


def _before_next_step(
    launches: LaunchSequence, started: list[float], period: float, end: float
) -> list[float]:
    """The latest end of each piece of work that leaves its stream free for the next step."""
    latest = np.full(len(started), end)
    for stream in np.unique(launches.stream):
        numbers = np.flatnonzero(launches.stream == stream)
        free = started[int(numbers[0])] + period - launches.gap_ns
        latest[numbers] = np.minimum(latest[numbers], free)
    latest_ends: list[float] = latest.tolist()
    return latest_ends
