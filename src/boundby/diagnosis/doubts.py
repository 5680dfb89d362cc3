"""Reasons to doubt a measurement: notes on the clean steps, and on the profiled step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from boundby.analysis.account import Attribution
from boundby.analysis.tables import above_roofline
from boundby.model import Machine, Note, Timeline, units
from boundby.model.assumptions.host import CPU_WAIT_LIMIT, STOLEN_LIMIT
from boundby.model.assumptions.verdict import (
    ABOVE_ROOFLINE,
    FASTER_PROFILED,
    SCALED_WORK,
    UNEVEN_STEPS,
)
from boundby.model.host_counters import HostCounters
from boundby.model.observation import Observation, StepTiming

_OF_THE_TRACE = ("graph-captured", "launches-not-recorded")
# A step that is unlike those that a program repeats.
UNUSUAL = frozenset({*_OF_THE_TRACE, "may-be-start-up"})


def measurement_notes(observation: Observation, step: StepTiming) -> list[Note]:
    """Notes on what makes the step's time itself doubtful."""
    if step.wall_source == "warm-up":
        text = "no clean step was measured: the time is that of warm-up steps"
        return [Note(code="no-clean-steps", text=text)]
    if step.wall_source != "clean":
        return []
    stolen = _stolen(observation.host) if observation.host is not None else []
    return _uneven(step.samples_ns) + stolen


def doubts(
    observation: Observation,
    timeline: Timeline,
    attribution: Attribution,
    machine: Machine,
    wall_ns: float,
) -> list[Note]:
    """Why the profiled step does not represent the clean ones, the likeliest reason first.

    Of a step without clean ones on this machine, only what the trace itself lacks.
    """
    notes = [note for note in timeline.notes if note.code in _OF_THE_TRACE]
    host_counters = observation.host
    if host_counters is None:
        return [
            *notes,
            *_above_roofline(attribution, machine),
            *_start_up(observation, attribution),
        ]
    cpu_wait = host_counters.cpu_wait_share
    clean_ns, own_ns = wall_ns, float(timeline.wall_ns)
    if not len(timeline.device):
        # Without waiting for cores: the profiled step may have waited less than the clean ones.
        clean_ns *= 1 - cpu_wait
        own_ns -= observation.profiled.cpu_wait_ns
    if cpu_wait > CPU_WAIT_LIMIT.value:
        # A process that ran while the script waited may have used its core.
        workers = host_counters.worker_cpu_share >= cpu_wait
        who = "processes that it started (DataLoader workers?)" if workers else ""
        text = (
            f"the script waited for a CPU core for {cpu_wait:.0%} of the clean steps, because "
            f"{who or 'another program or its own threads'} used the cores; lines and speed-ups "
            "exclude that time. Run again on a quiet machine for narrower ranges"
        )
        if attribution.op_records and not any(work.ns for work in attribution.op_records):
            # Waits make up all the time of the clean steps.
            text = (
                f"the script waited for a CPU core for {cpu_wait:.0%} of the clean steps: how long "
                "its operators and lines take is not known, and they are listed with no time. Run "
                "again on a quiet machine"
            )
        notes.append(Note(code="cpu-contention", text=text))
    if own_ns < FASTER_PROFILED.value * clean_ns:
        times = clean_ns / max(own_ns, 1.0)
        apart = "apart from waiting for a core, " if notes else ""
        text = (
            f"{apart}clean steps took {times:.1f} times as long as the profiled one, although the "
            "profiler adds time: another program may have used the machine. The difference counts "
            "as overhead"
        )
        notes.append(Note(code="slow-clean-steps", text=text))
    elif attribution.scaled < 1 / SCALED_WORK.value:
        # On an overloaded machine the step may be all waiting.
        more = 1 / max(attribution.scaled, 0.01) - 1
        text = (
            f"the operators of the profiled step, without the profiler's overhead, took {more:.0%} "
            "longer than a clean step: they are scaled down to match"
        )
        notes.append(Note(code="scaled-to-fit", text=text))
    return notes


def _above_roofline(attribution: Attribution, machine: Machine) -> list[Note]:
    """A note where a trace's operators are faster than the device of that name can be."""
    share = above_roofline(attribution.op_records, machine)
    if share < ABOVE_ROOFLINE.value:
        return []
    text = (
        f"{share:.0%} of the operators' time is faster than the roofline of {machine.device}: the "
        "trace names another device than it was recorded on, or its shapes or durations are wrong"
    )
    return [Note(code="above-roofline", text=text)]


def _start_up(observation: Observation, attribution: Attribution) -> list[Note]:
    """A note where most of a step that is the whole of a trace is overhead: it may be that of a
    first step, in which libraries are loaded and memory is allocated."""
    whole = any(note.code == "no-repeated-step" for note in observation.notes)
    if not whole or attribution.account.overhead.share < 0.5:
        return []
    text = (
        "the trace has no repeated step, and its overhead may be that of a first step, which loads "
        "libraries and allocates memory: profile later steps, and call prof.step() after each"
    )
    return [Note(code="may-be-start-up", text=text)]


def _uneven(samples: Sequence[float]) -> list[Note]:
    """A note when clean steps differ by more than noise."""
    low, high = (float(x) for x in np.percentile(samples, [10, 90]))
    if high < UNEVEN_STEPS.value * low:
        return []
    text = (
        f"clean steps took {units.time(low)} to {units.time(high)}, "
        f"{units.time(statistics.mean(samples))} on average: the work varies, or another program "
        "uses the machine"
    )
    return [Note(code="uneven-steps", text=text)]


def _stolen(host_counters: HostCounters) -> list[Note]:
    """A note if other virtual machines used a part of this one's cores."""
    share = host_counters.steal_share or 0.0
    if share < STOLEN_LIMIT.value:
        return []
    text = (
        f"other virtual machines took {share:.0%} of this one's CPU time (steal time): host-bound "
        "time is longer by as much"
    )
    return [Note(code="busy-machine", text=text)]
