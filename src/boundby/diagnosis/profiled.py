"""A step of which only profiled times are known: its shortest time, and a verdict for both ends."""

from __future__ import annotations

import msgspec

from boundby.analysis.account import Attribution
from boundby.analysis.verdict import VerdictResult
from boundby.model.diagnosis import GroupName, Verdict


def shortest_wall_ns(found: VerdictResult, attribution: Attribution) -> float:
    """The step with a host that costs nothing.

    A replay that does not explain the step cannot bound it: the device's busy time does.
    """
    if found.verdict.uncertain and attribution.device_busy_ns:
        return attribution.device_busy_ns
    return found.free_host_ns


def verdict_of_profiled(verdict: Verdict, attribution: Attribution) -> Verdict:
    """The verdict, with whether it also holds for the shortest step that the trace allows."""
    groups = attribution.account.groups()
    work = {
        name: group.ns if name != "overhead" else group.parts.get("small_kernels", 0.0)
        for name, group in groups.items()
    }
    shortest: GroupName = max(groups, key=lambda name: work[name])
    share = work[shortest] / max(sum(work.values()), 1.0)
    if shortest == verdict.bound_by:
        why = f"{verdict.why} This holds whatever the profiler's overhead is."
        return msgspec.structs.replace(verdict, why=why)
    why = (
        f"{verdict.why} The trace includes profiler overhead: if all idle time is profiler "
        f"overhead, the step is {_bound(shortest)} ({share:.0%} of device time). Pass --wall TIME, "
        "the time of an unprofiled step, to decide."
    )
    return msgspec.structs.replace(verdict, uncertain=True, why=why)


def _bound(group: GroupName) -> str:
    return "bound by something unknown" if group == "unknown" else f"{group}-bound"
