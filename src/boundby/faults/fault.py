"""What a remedy is: a fault it sees, a change it imagines, the words for both."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from boundby.fixes import FIXES, Fix
from boundby.model.diagnosis import GroupName
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
    """A step with the fault mended: as hoped for, as expected, as feared."""

    worst: Edit
    expected: Edit
    best: Edit
    where: list[str]
    change: str
    assumes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `excludes` names faults whose mending cannot be added to this one's.

    Without `treatments` of its own it has those that `program.FIXES` knows for the fault.
    """

    fault: str
    group: GroupName
    document: str
    detect: Callable[[StepModel], Detection | None]
    excludes: tuple[str, ...] = ()
    treatments: tuple[Fix, ...] = ()
    combines: bool = True  # whether its mended step can be mended further
    out_of: str = "the step"  # what its saving is a share of

    def __post_init__(self) -> None:
        if not self.treatments:
            object.__setattr__(self, "treatments", FIXES.get(self.fault, ()))

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return self.document.strip().splitlines()[0]

    def section(self, heading: str) -> str:
        """What its documentation says under a heading, without the indentation."""
        _, _, rest = self.document.partition(f"\n{heading}\n")
        lines = rest.splitlines()
        ends = (at for at, line in enumerate(lines) if line and not line[0].isspace())
        return textwrap.dedent("\n".join(lines[: next(ends, len(lines))])).strip()
