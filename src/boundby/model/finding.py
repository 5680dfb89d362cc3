"""Findings and other predictions for the step: fixes together, larger batches, other chips."""

from __future__ import annotations

from typing import Literal

from boundby.model.account import GroupName
from boundby.model.estimate import Estimate
from boundby.model.record import Record

FindingKind = Literal["mistake", "tuning", "note"]
RelativeTo = Literal["step", "run", "samples"]


class Finding(Record, frozen=True, kw_only=True):
    """A fault, where it is, and what fixing it would save.

    `summary`, `why` and `when_not` come from the fault's documentation, so that a report does not
    import faults. `fixes` are the ids of the fixes for it on this device, first the one that
    `change` describes. `also` are faults that the same fix removes, whose saving is included in
    this one's. `inside` are the lines of libraries that the user's lines lead to. `relative_to` is
    what the saving is a share of, `out_of` the same in words: a larger batch does not make a step
    shorter. `evidence` is the observation that makes it certain. `grows`: its cost grows with every
    step, such as memory until it is full, whatever it costs now. `static`: found by reading the
    source alone. `remark` explains a saving that looks odd.
    """

    fault: str
    title: str = ""
    kind: FindingKind = "tuning"
    group: GroupName
    where: list[str] = []
    inside: list[str] = []
    saving_ns: Estimate
    relative_to: RelativeTo = "step"
    out_of: str = "the step"
    change: str
    assumes: str = ""
    evidence: str = ""
    static: bool = False
    grows: bool = False
    remark: str = ""
    fixes: list[str] = []
    excludes: list[str] = []
    also: list[str] = []
    provable: bool = False
    summary: str = ""
    why: str = ""
    when_not: str = ""


class WhatIf(Record, frozen=True, kw_only=True):
    """Several faults fixed together: the predicted step time by group.

    Without faults it is the simulated unchanged step, which the others are compared with. The range
    of `saving_ns` is narrower than that of `wall_ns` if the unchanged step's time is uncertain too.
    """

    faults: list[str]
    wall_ns: Estimate
    saving_ns: Estimate | None = None
    groups: dict[str, float] = {}  # ns of the expected step by group


class BatchRow(Record, frozen=True, kw_only=True):
    """The predicted step with a larger batch.

    `saving_ns` is relative to `factor` present steps.
    """

    factor: int
    wall_ns: Estimate
    saving_ns: Estimate | None = None


class ChipRow(Record, frozen=True, kw_only=True):
    """The same step and host on another chip of the datasheet table."""

    chip: str
    wall_ns: Estimate
