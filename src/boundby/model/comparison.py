"""The differences between two diagnoses."""

from __future__ import annotations

from boundby.model.estimate import Estimate
from boundby.model.record import SCHEMA, Record


class Side(Record, frozen=True, kw_only=True):
    """One of the two diagnoses: its name, its machine, its step time."""

    name: str
    target: str | None = None
    device: str
    kind: str
    bound_by: str
    wall_ns: float
    wall_source: str
    interval_ns: tuple[float, float]
    samples_ns: list[float] = []
    # share of the measured step spent waiting for a core, which its times exclude
    waiting_share: float = 0.0
    threads: int | None = None


class Difference(Record, frozen=True, kw_only=True):
    """One item's time in both diagnoses; None if it does not exist in one. `depth`: how many rows
    of a tree it is below."""

    name: str
    depth: int = 0
    detail: str = ""
    text: str | None = None
    before_ns: float | None = None
    after_ns: float | None = None
    delta_ns: float
    before_count: int | None = None
    after_count: int | None = None


class Comparison(Record, frozen=True, kw_only=True):
    """What changed from one diagnosis to another.

    `ratio` is the step time after over before, with a 95% interval if there are enough samples.
    `beyond_noise` is None if the noise is unknown. `modules` is a tree; `paths` are lines by the
    lines that call them.
    """

    schema: int = SCHEMA
    before: Side
    after: Side
    ratio: Estimate
    beyond_noise: bool | None
    groups: list[Difference]
    ops: list[Difference]
    lines: list[Difference]
    modules: list[Difference] = []
    paths: list[Difference] = []
    warnings: list[str] = []
    same: bool = False  # both are one diagnosis
    refused: str = ""  # why the two cannot be compared; then `beyond_noise` is None

    @property
    def slowdown(self) -> float:
        """Return the relative slowdown: 0.05 is 5% slower, negative is faster."""
        return self.ratio.expected - 1
