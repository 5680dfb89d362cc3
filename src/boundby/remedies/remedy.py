"""What a remedy is: a fault it sees, a change it imagines, the words for both."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from boundby.model.diagnosis import GroupName
from boundby.picture import Change, Picture

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
class Treatment:
    """A way to mend a fault from outside, in a script nobody touches.

    `apply` is entered in the script's process before the script starts; `environment` is set
    before that process does. `precision` names the dtype in which it now computes what had more
    digits before: None promises the same arithmetic, up to its order.
    """

    name: str
    change: str  # what a user would write in the script
    apply: Callable[[], AbstractContextManager[None]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    precision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One fault. `excludes` names faults whose mending cannot be added to this one's."""

    fault: str
    group: GroupName
    document: str
    imagine: Callable[[Picture], Imagined | None]
    excludes: tuple[str, ...] = ()
    treatments: tuple[Treatment, ...] = ()
    combines: bool = True  # whether its mended step can be mended further

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
