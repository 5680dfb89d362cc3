"""What a fault is: how it is detected, what it costs, which fixes there are for it."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from boundby.fixes import Fix
from boundby.model.account import GroupName
from boundby.model.estimate import Estimate
from boundby.model.finding import FindingKind, RelativeTo
from boundby.step.model import Edit, StepModel

__all__ = ["HEADINGS", "Detection", "Fault", "Fix", "Stage"]

HEADINGS = (
    "What it looks for",
    "Why it costs time",
    "What to change",
    "When it does not help",
    "Measured on",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """A fault found in a step: where it is, and the edits that would remove it.

    `low`, `expected` and `high` are named for what they save. `fix`: the fix of `change`, if it is
    not the first of the fault's fixes. `evidence`: the observation that makes it certain.
    `kind`: if it is not the fault's.
    `is_static`: found by reading the source alone, not measured. `of_run_ns`: what it saves of the
    run, if it is not about the step.
    """

    low: Edit
    expected: Edit
    high: Edit
    where: list[str]
    change: str
    assumes: str
    fix: Fix | None = None
    evidence: str = ""
    kind: FindingKind | None = None
    is_static: bool = False
    of_run_ns: Estimate | None = None

    @classmethod
    def of_run(
        cls, saving_ns: Estimate, *, where: list[str], change: str, assumes: str, evidence: str
    ) -> Detection:
        """A detection about a part of the run; its saving follows from no edit of the step."""
        nothing = Edit()
        return cls(
            low=nothing,
            expected=nothing,
            high=nothing,
            where=where,
            change=change,
            assumes=assumes,
            evidence=evidence,
            of_run_ns=saving_ns,
        )

    @classmethod
    def of_saving(
        cls,
        saving_ns: Estimate,
        *,
        where: list[str],
        change: str,
        assumes: str,
        evidence: str = "",
    ) -> Detection:
        """A detection that states its saving of the step directly, without an edit of operators."""
        low, expected, high = (
            Edit.save_step(ns) for ns in (saving_ns.low, saving_ns.expected, saving_ns.high)
        )
        return cls(
            low=low,
            expected=expected,
            high=high,
            where=where,
            change=change,
            assumes=assumes,
            evidence=evidence,
        )


class Stage(enum.IntEnum):
    """The part of a step that a fix changes; faults are fixed together in this order.

    What replaces operators comes before what fuses the remaining ones, then host time, and
    launches last: a captured graph contains what the others left.
    """

    OPERATORS = 0
    FUSION = 1
    HOST = 2
    LAUNCHES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    `frameworks`: the frameworks of the programs it is looked for in. `kind`: a mistake in the
    script, or tuning of a correct one. `devices`: the kinds of step in which it is looked for.
    `fixes`: the likeliest first. `excludes`: faults whose saving cannot be added to this one's.
    `combines`: whether other faults can be fixed in the step without it. `stage`: what its fix
    changes, which orders fixes that are applied together. `relative_to`: what its saving is a share
    of. `before`: faults whose change should come after this one's. `yields_to`: more specific
    faults of the same time: at a line that one of them names, this one is not reported as well.
    `grows`: its cost grows with every step, and it is reported whatever it costs now.
    `always`: reported whatever it costs, because no program should run with it.
    """

    id: str
    title: str
    kind: FindingKind = "tuning"
    group: GroupName
    devices: tuple[str, ...] = ("cuda", "cpu")
    frameworks: tuple[str, ...] = ("torch",)
    document: str
    detect: Callable[[StepModel], Detection | None]
    fixes: tuple[Fix, ...] = ()
    excludes: tuple[str, ...] = ()
    stage: Stage = Stage.OPERATORS
    combines: bool = True
    relative_to: RelativeTo = "step"
    before: tuple[str, ...] = ()
    yields_to: tuple[str, ...] = ()
    grows: bool = False
    always: bool = False

    @classmethod
    def of_run(
        cls,
        *,
        id: str,  # noqa: A002 - the field's name
        title: str,
        document: str | None,
        detect: Callable[[StepModel], Detection | None],
    ) -> Fault:
        """A mistake outside of the steps: its saving is a share of the run."""
        return cls(
            id=id,
            title=title,
            kind="mistake",
            group="overhead",
            document=document or "",
            detect=detect,
            stage=Stage.HOST,
            combines=False,
            relative_to="run",
        )

    def find_in(self, step: StepModel) -> Detection | None:
        """The fault in a step; None if it is not there, or not looked for in such a step."""
        is_looked_for = step.device in self.devices and step.framework in self.frameworks
        return self.detect(step) if is_looked_for else None

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return self.document.strip().splitlines()[0]

    def section(self, heading: str) -> str:
        """The text of its documentation under a heading, without the indentation."""
        _, _, rest = self.document.partition(f"\n{heading}\n")
        lines = rest.splitlines()
        ends = (at for at, line in enumerate(lines) if line and not line[0].isspace())
        return textwrap.dedent("\n".join(lines[: next(ends, len(lines))])).strip()
