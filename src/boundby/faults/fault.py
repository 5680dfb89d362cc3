"""What a fault is: how it is detected, what it costs, which fixes there are for it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from boundby.fixes import Fix
from boundby.model.diagnosis import FindingKind, GroupName, RelativeTo
from boundby.step.model import Edit, StepModel

__all__ = ["HEADINGS", "Detection", "Fault", "Fix"]

HEADINGS = (
    "What it looks for",
    "Why it costs time",
    "What to change",
    "When it does not help",
    "Measured on",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """A fault found in a step: where it is, and the step without it in three scenarios.

    `fix`: what `change` asks for, where that is not the first of the fault's fixes.
    """

    worst: Edit
    expected: Edit
    best: Edit
    where: list[str]
    change: str
    assumes: str
    fix: Fix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    `kind`: a mistake in the script, or tuning of a correct one. `devices`: the kinds of step in
    which it is looked for. `fixes`: the likeliest first. `excludes`: faults whose saving cannot be
    added to this one's. `combines`: whether other faults can be fixed in the step without it.
    `relative_to`: what its saving is a share of.
    """

    id: str
    title: str
    kind: FindingKind = "tuning"
    group: GroupName
    devices: tuple[str, ...] = ("cuda", "cpu")
    document: str
    detect: Callable[[StepModel], Detection | None]
    fixes: tuple[Fix, ...] = ()
    excludes: tuple[str, ...] = ()
    combines: bool = True
    relative_to: RelativeTo = "step"

    def find_in(self, step_model: StepModel) -> Detection | None:
        """The fault in a step; None where it is not there, or not looked for on its device."""
        return self.detect(step_model) if step_model.device in self.devices else None

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
