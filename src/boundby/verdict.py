"""What a step is bound by: the group that would help most if it cost nothing.

Each is made free in a replay of the step: compute-bound kernels take their memory floor,
memory-bound ones their compute floor and copies nothing, the host and small kernels nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boundby.account import Accounted
from boundby.account.work import Work
from boundby.model import Machine, Timeline
from boundby.model.diagnosis import GroupName, Verdict
from boundby.replay import Script, replay, script_of, with_clean_phases

Floats = npt.NDArray[np.float64]

GROUPS: tuple[GroupName, ...] = ("compute", "bandwidth", "overhead")
# Gains nearer to each other than this are a tie.
_NEAR = 0.05
# A replay further than this from the clean step explains it badly.
_UNCERTAIN = 0.10
# A replay that knows less than this of the work cannot tell what it is bound by.
_MOSTLY_UNKNOWN = 0.5
_MOST_SAID = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict, and how well the replay explains the step."""

    verdict: Verdict
    replayed_ns: float
    replay_error: float | None
    free_host_ns: float  # the step with a host that costs nothing: no step is shorter


def judge(
    timeline: Timeline,
    accounted: Accounted,
    machine: Machine,
    *,
    wall_ns: float,
    phases: dict[str, float],
) -> Judged:
    """Replay the step as it is, then with each group free."""
    if len(timeline.device):
        script = script_of(timeline, gap_ns=machine.overheads.kernel_gap_ns)
        if phases:
            script = with_clean_phases(script, phases)
        base = replay(script)
        gains = {
            group: base / max(replay(_free(script, group, accounted, machine)), 1.0)
            for group in GROUPS
        }
        host_free = replay(replace(script, host_ns=0 * script.host_ns, after_ns=0.0))
        error = base / wall_ns - 1
    else:
        base, error, host_free = wall_ns, None, wall_ns
        gains = {
            group: wall_ns / max(wall_ns - _cpu_saving(group, accounted, machine), 1.0)
            for group in GROUPS
        }
    return Judged(
        verdict=_verdict(gains, error, accounted),
        replayed_ns=base,
        replay_error=error,
        free_host_ns=host_free,
    )


def _verdict(gains: dict[GroupName, float], error: float | None, accounted: Accounted) -> Verdict:
    ranked = sorted(gains, key=lambda group: -gains[group])
    first, second = ranked[0], ranked[1]
    if accounted.account.unknown.share > _MOSTLY_UNKNOWN:
        share = accounted.account.unknown.share
        words = f"{share:.0%} of the step is work whose cost or roof is not known"
        return Verdict(bound_by="unknown", uncertain=True, if_free=_plain(gains), why=words)
    if error is not None and abs(error) > _UNCERTAIN:
        groups = accounted.account.groups()
        largest: GroupName = max(groups, key=lambda group: groups[group].ns)
        words = (
            f"the largest part of the step, {groups[largest].share:.0%}; what making it free would "
            f"buy is not known, since the replay is {error:+.0%} off the clean step"
        )
        return Verdict(bound_by=largest, uncertain=True, if_free=_plain(gains), why=words)
    near = gains[first] < (1 + _NEAR) * gains[second]
    words = f"{first} made free, the step would run {_times(gains[first])} as fast"
    words += f", closely followed by {second} with {_times(gains[second])}" if near else ""
    others = [group for group in ranked[1:] if not (near and group == second)]
    words += "".join(f"; {group} free {_times(gains[group])}" for group in others)
    return Verdict(bound_by=first, uncertain=False, if_free=_plain(gains), why=words)


def _times(gain: float) -> str:
    return f"{gain:.2f}x" if gain < _MOST_SAID else f"over {_MOST_SAID}x"


def _plain(gains: dict[GroupName, float]) -> dict[str, float]:
    return {str(group): float(gain) for group, gain in gains.items()}


def _free(script: Script, group: GroupName, accounted: Accounted, machine: Machine) -> Script:
    factors = np.array([_left_of(work, group, machine) for work in accounted.works] or [1.0])
    device = script.device_ns * factors[accounted.member[script.order]]
    if group == "overhead":
        return replace(script, device_ns=device, host_ns=0 * script.host_ns, after_ns=0.0)
    return replace(script, device_ns=device)


def _left_of(work: Work, group: GroupName, machine: Machine) -> float:
    """What is left of a piece of work's time when a group costs nothing."""
    match group, work.bound:
        case ("compute", "compute"):
            floor = machine.memory_ns(work.cost) if work.cost else None
        case ("bandwidth", "memory"):
            floor = machine.compute_ns(work.cost) if work.cost else None
        case ("bandwidth", "network" | "host_link") | ("overhead", "small"):
            floor = 0.0
        case _:
            return 1.0
    return min(1.0, (floor or 0.0) / work.ns) if work.ns else 1.0


def _cpu_saving(group: GroupName, accounted: Accounted, machine: Machine) -> float:
    """On a CPU nothing overlaps: what costs nothing is saved whole."""
    saved = sum(work.exposed_ns * (1 - _left_of(work, group, machine)) for work in accounted.works)
    if group == "overhead":
        parts = accounted.account.overhead.parts
        saved += sum(ns for part, ns in parts.items() if part != "small_kernels")
    return saved
