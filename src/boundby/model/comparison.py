"""The differences between two diagnoses."""

from __future__ import annotations

from boundby.model.diagnosis import Estimate
from boundby.model.record import SCHEMA, Record


class Side(Record, frozen=True, kw_only=True):
    """One of the two: what it is called, where it ran, how long its step takes."""

    name: str
    target: str | None = None
    device: str
    kind: str
    bound_by: str
    wall_ns: float
    wall_source: str
    interval_ns: tuple[float, float]
    samples_ns: list[float] = []


class Difference(Record, frozen=True, kw_only=True):
    """One thing in both: its time in each; None where it is not there at all."""

    name: str
    detail: str = ""
    text: str | None = None
    before_ns: float | None = None
    after_ns: float | None = None
    delta_ns: float
    before_count: int | None = None
    after_count: int | None = None


class Comparison(Record, frozen=True, kw_only=True):
    """What changed from one diagnosis to another.

    `ratio` is the step's time after over before, with a 95% interval where there are samples
    enough; `beyond_noise` is None where nothing says how large the noise is.
    """

    schema: int = SCHEMA
    before: Side
    after: Side
    ratio: Estimate
    beyond_noise: bool | None
    groups: list[Difference]
    ops: list[Difference]
    lines: list[Difference]
    warnings: list[str] = []

    @property
    def slowdown(self) -> float:
        """How much longer the step takes: 0.05 is 5%, negative is faster."""
        return self.ratio.expected - 1
