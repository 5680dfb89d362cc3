"""The record of a line that makes the same calls many times."""

from __future__ import annotations

from dataclasses import dataclass

# In a recurrence, at least this share of a loop's iterations depend on the one before.
CHAINED = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A line that runs for `rounds` iterations.

    `is_uniform`: its operators are the same in each iteration, on tensors of any sizes. `calls`:
    operators that are the same call in every iteration. `chained`: those of `calls` that need the
    result of the iteration before. `lines`: the lines of the operators, the most frequent first, if
    each iteration calls a function. `spans`: start and end of the iterations. `is_rollout`: each
    iteration calls a model and reads a result, on which the next may depend.
    """

    line: str
    source: int
    lines: tuple[str, ...]
    rounds: int
    is_uniform: bool
    records: tuple[int, ...]
    calls: tuple[tuple[int, ...], ...]
    chained: tuple[tuple[int, ...], ...]
    spans: tuple[int, int]
    is_rollout: bool
    ns: float

    @property
    def independent_share(self) -> float:
        """The share of its operators that do not depend on another iteration."""
        return 1 - sum(map(len, self.chained)) / len(self.records)

    @property
    def is_recurrence(self) -> bool:
        """Whether most of its operators depend on the iteration before."""
        return self.independent_share < 1 - CHAINED
