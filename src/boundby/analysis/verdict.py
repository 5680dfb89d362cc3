"""Finds what a step is bound by: the group whose time at zero would speed it up most.

Each group is set to zero in a simulation of the step. Zero compute: compute-bound kernels take
their memory minimum. Zero bandwidth: memory-bound kernels take their compute minimum, copies and
collectives nothing. Zero overhead: the host and small kernels take no time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from boundby.analysis.kernel_classes import by_class
from boundby.model import Machine
from boundby.model.account import Account, GroupName, Verdict
from boundby.model.assumptions.verdict import MOSTLY_UNKNOWN, TIE, UNCERTAIN
from boundby.step.idle_causes import CPU_WAIT
from boundby.step.model import Edit, StepModel
from boundby.step.op_record import OpRecord

GROUPS: tuple[GroupName, ...] = ("compute", "bandwidth", "overhead")
# The largest share of a step counted as waiting for a core, so that something remains to divide.
_MOST_LOST = 0.98
# Larger speed-ups are printed as "over 100x".
_LARGEST_PRINTED = 100
# Shares of a group's time from which on its main cause is mentioned.
_MOSTLY_DATA = 0.5
_MOSTLY_SLOW = 0.5  # above: a majority of the time
_MOSTLY_NETWORK = 0.5  # above: a majority of the time
# Assumed: below this, transfers are not what the reader should look at first.
_MOSTLY_TRANSFER = 0.25
_MOSTLY_OF_ONE = 0.5  # above: a majority of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictResult:
    """The verdict, and how far the simulated step is from the measured one."""

    verdict: Verdict
    replay_error: float | None


def find_verdict(step_model: StepModel) -> VerdictResult:
    """The verdict from simulations of the step: unchanged, and with each group at zero."""
    # Waiting for a core is not a property of the step: speed-ups are computed without it.
    share = step_model.account.overhead.parts.get(CPU_WAIT, 0.0) / max(step_model.wall_ns, 1.0)
    lost = min(share, _MOST_LOST) * step_model.base_ns
    gains = {}
    for group in GROUPS:
        left = step_model.evaluate(_at_zero(step_model, group))
        if group != "overhead":  # waiting is a part of the overhead
            # A shorter step also waits less: its waiting shrinks in proportion.
            saved = (step_model.base_ns - left) / step_model.cpu_contention
            left = step_model.base_ns - lost - saved
        gains[group] = (step_model.base_ns - lost) / max(left, 1.0)
    error = step_model.replay_error
    return VerdictResult(
        verdict=_verdict(gains, error, step_model),
        replay_error=error,
    )


def _verdict(gains: dict[GroupName, float], error: float | None, step_model: StepModel) -> Verdict:
    account = step_model.account
    ranked = sorted(gains, key=lambda group: -gains[group])
    first, second = ranked[0], ranked[1]
    if account.unknown.share > MOSTLY_UNKNOWN.value:
        share = account.unknown.share
        why = f"{share:.0%} of the step is work of unknown cost{_reason(step_model)}."
        if named := by_class(step_model.op_records):
            why += f" By class of kernel: {named}."
        return Verdict(bound_by="unknown", uncertain=True, if_free=_plain(gains), why=why)
    off = error if error is not None and abs(error) > UNCERTAIN.value else 0.0
    if off and step_model.device != "cpu":
        groups = account.groups()
        largest: GroupName = max(groups, key=lambda group: groups[group].ns)
        why = (
            f"{largest.capitalize()} is the largest part of the step ({groups[largest].share:.0%})."
            f" The simulated step {_compared(off)} the measured one, so the speed-up without it is"
            " unknown."
        )
        return Verdict(bound_by=largest, uncertain=True, if_free=_plain(gains), why=why)
    others = ", ".join(f"{_zero(group, account)} {_times(gains[group])}" for group in ranked[1:])
    why = (
        f"With {_zero(first, account)} the step would be {_times(gains[first])} faster ({others})."
    )
    if gains[first] < (1 + TIE.value) * gains[second]:
        why += f" {first.capitalize()} and {second} are within {TIE.value:.0%} of each other."
    why += _main_cause(account, first)
    if off:
        # On a CPU the speed-ups are shares of the clean step, from which other steps differ.
        more = "longer" if off > 0 else "shorter"
        why += f" Other steps, timed phase by phase, were {abs(off):.0%} {more}."
    return Verdict(bound_by=first, uncertain=bool(off), if_free=_plain(gains), why=why)


def _reason(step_model: StepModel) -> str:
    """Why most of the unknown work is unknown, if that is one reason."""
    timeline, device = step_model.timeline, step_model.timeline.device
    if not step_model.machine.roofs:
        return ", because the roofs of the device are unknown"
    without_call = device.graph & (True if device.call is None else device.call < 0)
    replayed_ns = float(device.duration_ns[without_call].sum())
    by_name: defaultdict[str, float] = defaultdict(float)
    for record in step_model.op_records:
        by_name[record.name] += record.ns * (record.bound == "unknown")
    if replayed_ns > _MOSTLY_OF_ONE * sum(by_name.values()):
        hint = " (--capture FILE adds them from a trace of the capture)"
        known = f"are not in the trace{hint}" if device.call is None else "are unknown"
        return f": kernels of replayed graphs, whose operators {known}"
    if not timeline.calls:
        return ": its operators carry no shapes"
    name, ns = max(by_name.items(), key=lambda item: item[1], default=("", 0.0))
    return f", mostly {name}" if ns > _MOSTLY_OF_ONE * sum(by_name.values()) else ""


def _compared(off: float) -> str:
    """ "is 20% shorter than", "takes 3.0x as long as": a relative difference in words."""
    if off >= 1:
        return f"takes {_times(1 + off)} as long as"
    return f"is {abs(off):.0%} {'longer' if off > 0 else 'shorter'} than"


def _zero(group: GroupName, account: Account) -> str:
    """The name of a group at zero: `zero memory time`, `zero overhead`."""
    if group == "overhead":
        return "zero overhead"
    if group == "compute":
        return "zero compute"
    bandwidth = account.bandwidth
    transfer_ns = bandwidth.ns - bandwidth.parts.get("device_memory", 0.0)
    transfers = transfer_ns > _MOSTLY_TRANSFER * bandwidth.ns
    return "zero memory and transfer time" if transfers else "zero memory time"


def _main_cause(account: Account, group: GroupName) -> str:
    return (
        _communication(account, group)
        or _slow_kernels(account, group)
        or _waiting_for_data(account, group)
    )


def _communication(account: Account, group: GroupName) -> str:
    """States that bandwidth is network bandwidth, if that is most of it."""
    bandwidth = account.bandwidth
    spent = bandwidth.parts.get("network", 0.0)
    if group != "bandwidth" or spent <= _MOSTLY_NETWORK * bandwidth.ns:
        return ""
    return (
        f" {spent / bandwidth.ns:.0%} of the bandwidth time is communication, which includes"
        " waiting for slower ranks."
    )


def _slow_kernels(account: Account, group: GroupName) -> str:
    """States that kernels run below the roofline, if that is most of the group's time."""
    account_group = account.groups()[group]
    if not account_group.excess_ns or account_group.excess_ns < _MOSTLY_SLOW * account_group.ns:
        return ""
    share = account_group.excess_ns / account_group.ns
    if group == "bandwidth":
        return (
            f" {share:.0%} of the memory time is kernels running below the memory roofline,"
            " not necessary traffic."
        )
    return f" {share:.0%} of the {group} time is kernels running below the roofline."


def _waiting_for_data(account: Account, group: GroupName) -> str:
    """States that overhead is waiting for batches, if that is most of it."""
    overhead = account.overhead
    waited = overhead.parts.get("data", 0.0)
    if group != "overhead" or waited <= _MOSTLY_DATA * overhead.ns:
        return ""
    return f" {waited / overhead.ns:.0%} of the overhead is waiting for data."


def _times(gain: float) -> str:
    return f"{gain:.1f}x" if gain < _LARGEST_PRINTED else f"over {_LARGEST_PRINTED}x"


def _plain(gains: dict[GroupName, float]) -> dict[str, float]:
    return {str(group): float(gain) for group, gain in gains.items()}


def _at_zero(step_model: StepModel, group: GroupName) -> Edit:
    """The edit that sets one group's time to zero."""
    op_ns = {
        index: record.ns * left
        for index, record in enumerate(step_model.op_records)
        if (left := _left_of(record, group, step_model.machine)) < 1
    }
    edit = Edit.set_time(op_ns)
    return edit + step_model.without_host if group == "overhead" else edit


def _left_of(record: OpRecord, group: GroupName, machine: Machine) -> float:
    """The share of an operator's time that remains when a group's time is zero."""
    match group, record.bound:
        case ("compute", "compute"):
            floor = machine.memory_ns(record.cost) if record.cost else None
        case ("bandwidth", "memory"):
            floor = machine.compute_ns(record.cost) if record.cost else None
        case ("bandwidth", "network" | "host_link") | ("overhead", "small" | "python"):
            floor = 0.0
        case _:
            return 1.0
    return min(1.0, (floor or 0.0) / record.ns) if record.ns else 1.0
