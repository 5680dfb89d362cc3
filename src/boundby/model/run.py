"""Where a script's whole life went: imports, set-up, training, evaluation, and so on."""

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


# What a script pays once, however long it runs.
ONCE: tuple[RunPartName, ...] = ("import", "setup", "compile")


class RunPart(Record, frozen=True, kw_only=True):
    """All time of one kind. `count`: how often it came, as far as that is a number of events.

    `details` divides it further: by package where it is imports, else by the script's line.
    `repeated_ns`: what came after the first event at each line, which workers that start again pay.
    `recorded_ns`: of evaluations, what went into calls that record gradients which nobody computes.
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
    """The account of a script's life; the parts add up to `wall_ns`, the largest first.

    What boundby itself took is not part of it. `step_share`: the share that lies in steps of the
    diagnosed kind. `scope` says what was seen, in words.
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
        """What goes on for as long as the script runs: not imports, set-up and compilation."""
        return sum(part.ns for part in self.parts if part.name not in ONCE)

    @property
    def step_share_of_recurring(self) -> float | None:
        """The share of that which lies in steps of the diagnosed kind."""
        if self.step_share is None or not self.recurring_ns:
            return None
        return min(1.0, self.step_share * self.wall_ns / self.recurring_ns)

    def part(self, name: RunPartName) -> RunPart | None:
        return next((part for part in self.parts if part.name == name), None)
