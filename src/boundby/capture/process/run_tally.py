"""Sums of the times of a run, by part and place, and the account made of them.

Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boundby.model.run import RunPartName, RunParts

# A first step that takes this many times the usual includes setup.
_FIRST_STEP = 3.0
_MOST_DETAILS = 20  # memory limit


@dataclass(slots=True)
class StepTally:
    """Steps of one kind: times of undisturbed ones, and how many a profiler or syncs slowed."""

    clean_ns: list[float] = field(default_factory=list)
    distorted: int = 0

    @property
    def usual_ns(self) -> float:
        return statistics.median(self.clean_ns) if self.clean_ns else 0.0

    @property
    def count(self) -> int:
        return len(self.clean_ns) + self.distorted

    @property
    def total_ns(self) -> float:
        """The time of all steps; a slowed one counts as a usual one."""
        return sum(self.clean_ns) + self.distorted * self.usual_ns


@dataclass(slots=True)
class Loader:
    """A loader that batches were taken from; `fetched` counts those since its last start."""

    length: int | None = None
    workers: int = 0
    where: str | None = None
    starts: int = 0
    fetched: int = 0

    @property
    def left(self) -> int | None:
        """Batches left of the first epoch; None if the length is unknown or that epoch is over."""
        if self.length is None or self.starts != 1:
            return None
        return max(0, self.length - self.fetched)


@dataclass(slots=True)
class RunTally:
    """Times by part of the run, by place and by kind of step.

    `recorded_ns` is the time of evaluation rows whose calls record gradients that no backward pass
    uses. `row_ns` is the time in evaluation rows by the kind of their steps.
    """

    ns: dict[RunPartName, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[RunPartName, int] = field(default_factory=lambda: defaultdict(int))
    recorded_ns: dict[RunPartName, float] = field(default_factory=lambda: defaultdict(float))
    details: dict[RunPartName, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    steps: dict[str, StepTally] = field(default_factory=dict)
    first_kind: str | None = None
    row_ns: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def copy(self) -> RunTally:
        """A copy that parts and places can be added to; steps are shared."""
        copied = RunTally(
            recorded_ns=self.recorded_ns,
            steps=self.steps,
            first_kind=self.first_kind,
            row_ns=self.row_ns,
        )
        copied.ns.update(self.ns)
        copied.counts.update(self.counts)
        for part, places in self.details.items():
            copied.details[part] = {where: list(times) for where, times in places.items()}
        return copied

    def add_step(self, kind: str, ns: float, *, distorted: bool) -> None:
        steps = self.steps.setdefault(kind, StepTally())
        if distorted:
            steps.distorted += 1
        else:
            steps.clean_ns.append(ns)
        self.first_kind = self.first_kind or kind

    def add_row(self, part: RunPartName, ns: float, where: str | None) -> None:
        """Add a row of evaluation or rollout steps."""
        self.ns[part] += ns
        self.counts[part] += 1
        self.add_detail(part, where, ns)

    def add_detail(
        self, part: RunPartName, where: str | None, ns: float, *, new: bool = True
    ) -> None:
        """Add time to a place; `new`: as one more occurrence, else to the last one."""
        if where is None:
            return
        known = self.details[part]
        if where in known and not new and known[where]:
            known[where][-1] += ns
        elif where in known or len(known) < _MOST_DETAILS:
            known.setdefault(where, []).append(ns)

    @property
    def usual_step_ns(self) -> float:
        """The usual time of a step of the slowest kind; 0 without steps."""
        return max((steps.usual_ns for steps in self.steps.values()), default=0.0)

    def account(
        self,
        main_kind: str | None,
        *,
        trained: RunPartName,
        unfinished_ns: float,
        left: int,
        scope: str,
    ) -> RunParts:
        """The parts of the run, the longest first.

        `trained` is the part that the steps belong to; `unfinished_ns` is the time of a last step
        that has not ended; `left` steps of the main kind are extrapolated.
        """
        from boundby.model.run import RunPart, RunParts

        ns = self.ns
        setup = self._first_step_setup()
        ns["setup"] += setup
        stepped = sum(steps.total_ns for steps in self.steps.values())
        ns[trained] += stepped - setup + unfinished_ns
        count = sum(steps.count for steps in self.steps.values()) + left
        main = self.steps.get(main_kind) if main_kind is not None else None
        left_ns = left * main.usual_ns if main is not None else 0.0
        ns[trained] += left_ns
        total = sum(ns.values())
        main_ns: float | None = None
        if main_kind in self.row_ns:
            # Rows before the first update were not divided into steps.
            in_rows = self.row_ns[main_kind] / sum(self.row_ns.values())
            main_ns = in_rows * (ns.get("rollout", 0.0) + ns.get("eval", 0.0))
        if main is not None:
            main_ns = main.total_ns + left_ns + (main_ns or 0.0)
        parts = [
            RunPart(
                name=name,
                ns=spent,
                share=spent / total if total else 0.0,
                extrapolated=bool(left) and name == trained,
                count=count if name == trained and self.steps else self.counts.get(name, 0),
                repeated_ns=sum(sum(one[1:]) for one in self.details.get(name, {}).values()),
                recorded_ns=self.recorded_ns.get(name, 0.0),
                details=_longest(self.details.get(name, {})),
            )
            for name, spent in ns.items()
            if spent > 0
        ]
        return RunParts(
            wall_ns=total,
            parts=sorted(parts, key=lambda part: -part.ns),
            step_share=main_ns / total if main_ns is not None and total else None,
            scope=scope,
        )

    def _first_step_setup(self) -> float:
        """The time of the first step above the usual time of its kind."""
        steps = self.steps.get(self.first_kind or "")
        if steps is None or len(steps.clean_ns) < 2:
            return 0.0
        extra = steps.clean_ns[0] - steps.usual_ns
        return extra if steps.clean_ns[0] > _FIRST_STEP * steps.usual_ns else 0.0


def _longest(details: dict[str, list[float]]) -> dict[str, float]:
    """Sums, the largest first."""
    sums = {where: sum(times) for where, times in details.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
