"""The account of a step, divided into four groups, and what follows from it."""

from __future__ import annotations

from typing import Literal

from boundby.model.record import Record

GroupName = Literal["compute", "bandwidth", "overhead", "unknown"]


class Group(Record, frozen=True, kw_only=True):
    """A part of the step. `excess_ns` is the time of its kernels above their roofline minimum."""

    ns: float = 0.0
    share: float = 0.0
    excess_ns: float | None = None
    parts: dict[str, float] = {}


class Account(Record, frozen=True, kw_only=True):
    """The whole step time, divided into four groups."""

    compute: Group
    bandwidth: Group
    overhead: Group
    unknown: Group

    def groups(self) -> dict[GroupName, Group]:
        return {
            "compute": self.compute,
            "bandwidth": self.bandwidth,
            "overhead": self.overhead,
            "unknown": self.unknown,
        }


class Verdict(Record, frozen=True, kw_only=True):
    """What the step is bound by.

    `if_free`: how many times faster the step would be with each group at zero time; empty if that
    was not simulated: `bound_by` is then the largest group.
    `or_bound_by` is what it is bound by at the other end of the interval of the step's time.
    """

    bound_by: GroupName
    or_bound_by: GroupName | None = None
    uncertain: bool = False
    if_free: dict[str, float] = {}
    why: str = ""


class Utilisation(Record, frozen=True, kw_only=True):
    """The used share of the device, against measured roofs and against the datasheet.

    `at_least`: part of the arithmetic is unknown, so MFU and HFU are lower bounds. `costed` is the
    share of device time of known cost, `classified` that of known cost or class.
    """

    mfu: float | None = None
    hfu: float | None = None
    mfu_datasheet: float | None = None
    hfu_datasheet: float | None = None
    bandwidth: float | None = None
    device: float | None = None
    host_lead_ns: float | None = None
    at_least: bool = False
    costed: float | None = None
    classified: float | None = None
