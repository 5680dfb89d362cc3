"""What a step is bound by: the group that would help most if it cost nothing.

Each is made free in a replay of the step: compute-bound kernels take their memory floor,
memory-bound ones their compute floor and copies nothing, the host and small kernels nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boundby.model import Machine
from boundby.model.diagnosis import Account, GroupName, Verdict
from boundby.step.model import Edit, StepModel
from boundby.step.op_record import OpRecord
from boundby.step.simulator import LaunchSequence

GROUPS: tuple[GroupName, ...] = ("compute", "bandwidth", "overhead")
# Gains nearer to each other than this are a tie.
_NEAR = 0.05
# A replay further than this from the clean step explains it badly.
_UNCERTAIN = 0.10
# A replay that knows less than this of the work cannot tell what it is bound by.
_MOSTLY_UNKNOWN = 0.5
_MOST_SAID = 100
_MOSTLY_DATA = 0.5
_MOSTLY_SLOW = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictResult:
    """The verdict, and how well the replay explains the step."""

    verdict: Verdict
    replay_error: float | None
    free_host_ns: float  # the step with a host that costs nothing: no step is shorter


def find_verdict(step_model: StepModel) -> VerdictResult:
    """Replay the step as it is, then with each group free."""
    gains = {
        group: step_model.base_ns / max(step_model.replay(_free(step_model, group)), 1.0)
        for group in GROUPS
    }
    error, host_free = step_model.replay_error, step_model.wall_ns
    if step_model.script is not None:
        host_free = step_model.replay(_idle_host(step_model.script, {}))
    return VerdictResult(
        verdict=_verdict(gains, error, step_model),
        replay_error=error,
        free_host_ns=host_free,
    )


def _verdict(gains: dict[GroupName, float], error: float | None, step_model: StepModel) -> Verdict:
    account = step_model.account
    ranked = sorted(gains, key=lambda group: -gains[group])
    first, second = ranked[0], ranked[1]
    if account.unknown.share > _MOSTLY_UNKNOWN:
        share = account.unknown.share
        words = f"{share:.0%} of the step is work whose cost or roof is not known"
        return Verdict(bound_by="unknown", uncertain=True, if_free=_plain(gains), why=words)
    off = error if error is not None and abs(error) > _UNCERTAIN else 0.0
    if off and step_model.on_device:
        groups = account.groups()
        largest: GroupName = max(groups, key=lambda group: groups[group].ns)
        words = (
            f"the largest part of the step, {groups[largest].share:.0%}; what making it free would "
            f"buy is not known, since the replay is {off:+.0%} off the clean step"
        )
        return Verdict(bound_by=largest, uncertain=True, if_free=_plain(gains), why=words)
    near = gains[first] < (1 + _NEAR) * gains[second]
    words = f"{first} made free, the step would run {_times(gains[first])} as fast"
    words += f", closely followed by {second} with {_times(gains[second])}" if near else ""
    others = [group for group in ranked[1:] if not (near and group == second)]
    words += "".join(f"; {group} free {_times(gains[group])}" for group in others)
    words += _slow_kernels(account, first) + _for_data(account, first)
    if off:
        # On a CPU the gains are shares of the clean step; but is it the same step all the time?
        more = "longer" if off > 0 else "less"
        words += f". Other steps, timed phase by phase, took {abs(off):.0%} {more}"
    return Verdict(bound_by=first, uncertain=bool(off), if_free=_plain(gains), why=words)


def _slow_kernels(account: Account, group: GroupName) -> str:
    """Being bound by memory, and taking three times what the memory asks for, are two things."""
    found = account.groups()[group]
    if not found.excess_ns or found.excess_ns < _MOSTLY_SLOW * found.ns:
        return ""
    share = found.excess_ns / found.ns
    return f". {share:.0%} of that time is above what the roof asks for: slow kernels"


def _for_data(account: Account, group: GroupName) -> str:
    """A step that waits for its batches is short of nothing that it does itself."""
    overhead = account.overhead
    waited = overhead.parts.get("data", 0.0)
    if group != "overhead" or waited < _MOSTLY_DATA * overhead.ns:
        return ""
    return f". {waited / overhead.ns:.0%} of the overhead is waiting for data"


def _times(gain: float) -> str:
    return f"{gain:.2f}x" if gain < _MOST_SAID else f"over {_MOST_SAID}x"


def _plain(gains: dict[GroupName, float]) -> dict[str, float]:
    return {str(group): float(gain) for group, gain in gains.items()}


def _free(step_model: StepModel, group: GroupName) -> Edit:
    """The step with one group costing nothing."""
    work_ns = {
        index: work.ns * left
        for index, work in enumerate(step_model.op_records)
        if (left := _left_of(work, group, step_model.machine)) < 1
    }
    if group != "overhead":
        return Edit(work_ns=work_ns)
    if step_model.script is not None:
        return _idle_host(step_model.script, work_ns)
    return Edit(python_ns=step_model.account.overhead.ns)


def _idle_host(script: LaunchSequence, work_ns: dict[int, float]) -> Edit:
    return Edit(work_ns=work_ns, host_ns=np.zeros_like(script.host_ns), after_ns=0.0)


def _left_of(work: OpRecord, group: GroupName, machine: Machine) -> float:
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
