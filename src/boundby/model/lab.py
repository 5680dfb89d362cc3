"""Predictions, measurements and results of lab experiments."""

from __future__ import annotations

from typing import Literal

from boundby.model.machine import Machine
from boundby.model.record import SCHEMA, Record


class Interval(Record, frozen=True, kw_only=True):
    """A figure with its range."""

    low: float
    value: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high

    def over(self, other: Interval) -> Interval:
        """Return the ratio to another figure: lowest over highest, highest over lowest."""
        return Interval(
            low=self.low / other.high, value=self.value / other.value, high=self.high / other.low
        )

    def times(self, factor: float) -> Interval:
        return Interval(low=self.low * factor, value=self.value * factor, high=self.high * factor)

    def inverse(self, factor: float = 1.0) -> Interval:
        """Return `factor` divided by this figure: converts between time and rate."""
        return Interval(low=factor / self.high, value=factor / self.value, high=factor / self.low)


class Prediction(Interval, frozen=True, kw_only=True):
    """A predicted figure. `rests_on` names the saved figures it was computed from."""

    what: str
    unit: str = ""
    rests_on: list[str] = []


class Measurement(Interval, frozen=True, kw_only=True):
    """A measured figure. `held`: its interval overlaps the predicted one; None without a
    prediction."""

    what: str
    unit: str = ""
    held: bool | None = None


class Series(Record, frozen=True, kw_only=True):
    """Points of a line plot. A predicted one is drawn dashed."""

    name: str
    points: list[tuple[float, float]]
    predicted: bool = False


class Mark(Record, frozen=True, kw_only=True):
    """A vertical line at a position on the x axis."""

    x: float
    name: str
    predicted: bool = False


class Axis(Record, frozen=True, kw_only=True):
    name: str
    unit: str = ""  # "ns", "B", "B/s", "FLOP/s", "share" or "" for plain numbers
    log: bool = True


class Lines(Record, frozen=True, kw_only=True, tag="lines"):
    """A line plot."""

    title: str
    x: Axis
    y: Axis
    series: list[Series]
    marks: list[Mark] = []


class Bar(Record, frozen=True, kw_only=True):
    """One named figure with its predicted interval."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


class Bars(Record, frozen=True, kw_only=True, tag="bars"):
    """A bar plot."""

    title: str
    axis: Axis
    bars: list[Bar]


Plot = Lines | Bars

Outcome = Literal["held", "not held", "failed", "not run"]


class Result(Record, frozen=True, kw_only=True):
    """One experiment's predictions, measurements and outcome."""

    name: str
    title: str
    claim: str
    outcome: Outcome
    predicted: dict[str, Prediction] = {}
    measured: dict[str, Measurement] = {}
    held: bool | None = None
    why: str = ""
    notes: list[str] = []
    plots: list[Plot] = []
    seconds: float = 0.0


class LabReport(Record, frozen=True, kw_only=True):
    """All experiments run on one machine."""

    schema: int = SCHEMA
    machine: Machine
    results: list[Result] = []
    run_at: str | None = None  # ISO 8601, UTC
    quick: bool = False
    interrupted: bool = False
