"""What a remedy is: a fault it sees, a change it imagines, the words for both."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from boundby.fixes import TREATMENTS, Treatment
from boundby.model.diagnosis import GroupName
from boundby.step.model import Change, Picture

__all__ = ["HEADINGS", "Imagined", "Remedy", "Treatment"]

HEADINGS = (
    "What it sees",
    "Why it costs time",
    "The change",
    "When it does not help",
    "Proven on",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imagined:
    """A step with the fault mended: as hoped for, as expected, as feared."""

    worst: Change
    expected: Change
    best: Change
    where: list[str]
    change: str
    assumes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One fault. `excludes` names faults whose mending cannot be added to this one's.

    Without `treatments` of its own it has those that `program.TREATMENTS` knows for the fault.
    """

    fault: str
    group: GroupName
    document: str
    imagine: Callable[[Picture], Imagined | None]
    excludes: tuple[str, ...] = ()
    treatments: tuple[Treatment, ...] = ()
    combines: bool = True  # whether its mended step can be mended further
    out_of: str = "the step"  # what its saving is a share of

    def __post_init__(self) -> None:
        if not self.treatments:
            object.__setattr__(self, "treatments", TREATMENTS.get(self.fault, ()))

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
