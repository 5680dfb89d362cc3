"""The parts of a whole run: imports, setup, training, evaluation, and so on."""

from __future__ import annotations

from typing import Literal

from boundby.model.record import Record

# `rollout`: a model in training mode called without gradients between updates, as reinforcement
# learning collects experience.
RunPartName = Literal[
    "import",
    "setup",
    "compile",
    "train",
    "eval",
    "rollout",
    "checkpoint",
    "logging",
    "data_start",
    "idle",
    "other",
]


# Parts that occur once, however long the script runs.
ONCE: tuple[RunPartName, ...] = ("import", "setup", "compile")


class RunPart(Record, frozen=True, kw_only=True):
    """All time of one kind. `count`: how often it occurred, if it consists of events.

    `details` divides it further: by package for imports, otherwise by the script's line.
    `repeated_ns`: time after the first event at each line, such as that of workers that start
    again. `recorded_ns`: for evaluations, time in calls that record gradients no backward uses.
    `extrapolated`: some of it was not seen, because the script was ended early.
    """

    name: RunPartName
    ns: float
    share: float
    extrapolated: bool = False
    count: int = 0
    repeated_ns: float = 0.0
    recorded_ns: float = 0.0
    details: dict[str, float] = {}


class RunParts(Record, frozen=True, kw_only=True):
    """The parts of a run; they add up to `wall_ns`, the largest first.

    boundby's own time is left out. `step_share`: the share of steps of the diagnosed kind. `scope`
    says what was seen, in words.
    """

    wall_ns: float
    parts: list[RunPart] = []
    step_share: float | None = None
    scope: str = ""

    @property
    def extrapolated(self) -> bool:
        return any(part.extrapolated for part in self.parts)

    @property
    def recurring_ns(self) -> float:
        """Time that continues while the script runs: without imports, setup and compilation."""
        return sum(part.ns for part in self.parts if part.name not in ONCE)

    @property
    def step_share_of_recurring(self) -> float | None:
        """The share of that time in steps of the diagnosed kind."""
        if self.step_share is None or not self.recurring_ns:
            return None
        return min(1.0, self.step_share * self.wall_ns / self.recurring_ns)

    def part(self, name: RunPartName) -> RunPart | None:
        return next((part for part in self.parts if part.name == name), None)
