"""A step of which only profiled times are known: its time without the profiler, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from boundby.model import Machine, Note, Timeline
from boundby.model.account import GroupName, Verdict
from boundby.model.assumptions.verdict import EXPLAINED
from boundby.model.estimate import Estimate
from boundby.model.intervals import union
from boundby.step.host_intervals import HostIntervals, find_host_intervals
from boundby.step.profiled_host import HostRange, without_profiler
from boundby.step.simulator import build_launch_sequence, replay, simulated_timeline

# Codes of the notes that say why a file does not contain the whole step.
DEVICE_NOT_RECORDED = "device-not-recorded"
UNTRUSTED = (DEVICE_NOT_RECORDED, "truncated-file")
_DECIDES = "Time a step without a profiler and pass --wall to decide."


@dataclass(frozen=True, slots=True, kw_only=True)
class UnprofiledStep:
    """The time of a profiled step without the profiler, with its host times.

    `is_explained`: the simulation of the profiled step takes as long as that did.
    """

    wall_ns: Estimate
    host: HostRange
    where: HostIntervals
    is_explained: bool

    def at_unprofiled_speed(self, timeline: Timeline) -> Timeline:
        """The step's events at their times without the profiler; as profiled if the simulation does
        not explain the step."""
        return simulated_timeline(timeline, self.host.expected) if self.is_explained else timeline


def estimate_unprofiled(timeline: Timeline, machine: Machine) -> UnprofiledStep:
    """Simulate the step with the profiler overhead subtracted from its host times.

    Time of the profiled step that the simulation does not explain is not profiler overhead, and
    stays.
    """
    gap_ns = machine.overheads.gap_ns(timeline.device.duration_ns)
    launches = build_launch_sequence(timeline, gap_ns=gap_ns)
    where = find_host_intervals(timeline)
    host = without_profiler(timeline, launches, where)
    profiled = float(timeline.wall_ns)
    unexplained = max(0.0, profiled - replay(launches))
    begins, ends = union(timeline.device.start_ns, timeline.device.duration_ns)
    least = min(float((ends - begins).sum()), profiled)
    low, expected, high = (
        min(profiled, max(least, replay(sequence) + unexplained))
        for sequence in (host.low, host.expected, host.high)
    )
    low, high = min(low, expected), max(expected, high)
    return UnprofiledStep(
        wall_ns=Estimate(low=low, expected=expected, high=high),
        host=host,
        where=where,
        is_explained=unexplained < EXPLAINED.value * profiled,
    )


def untrusted(verdict: Verdict, notes: Sequence[Note]) -> Verdict:
    """The verdict on a file that contains a part of the step: this is stated first, and it is
    uncertain."""
    text = next(note.text for note in notes if note.code in UNTRUSTED)
    if any(note.code == DEVICE_NOT_RECORDED for note in notes):
        return Verdict(bound_by="unknown", uncertain=True, why=f"{text[0].upper()}{text[1:]}.")
    why = f"{text[0].upper()}{text[1:]}. {verdict.why}"
    return msgspec.structs.replace(verdict, uncertain=True, why=why)


def verdict_over_range(likeliest: Verdict, low: Verdict, high: Verdict) -> Verdict:
    """The verdict, with what it would be at either end of the step time's interval."""
    if likeliest.bound_by == "unknown":
        return likeliest
    others = [end for end in (low, high) if end.bound_by not in ("unknown", likeliest.bound_by)]
    if not others:
        return likeliest
    other: GroupName = others[0].bound_by
    end = "shorter" if others[0] is low else "longer"
    why = (
        f"{likeliest.why} If the step without the profiler is at the {end} end of its range, it is "
        f"{other}-bound. {_DECIDES}"
    )
    return msgspec.structs.replace(likeliest, or_bound_by=other, uncertain=True, why=why)
