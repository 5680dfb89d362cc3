"""The type of an experiment: a prediction from a machine and a measurement to compare with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from boundby.lab.bench import Bench
from boundby.model import Machine
from boundby.model.lab import Interval, Measurement, Plot, Prediction

HEADINGS = ("The claim", "The law", "The experiment")

# A saved rate counts as reached within this factor: the roofs themselves are the best of several
# patterns, shapes or bursts.
TOLERANCE = 1.25

Predictions = dict[str, Prediction]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Additional figures that an experiment needs, measured before it predicts."""

    figures: Mapping[str, Interval] = field(default_factory=dict)
    state: Any = None


@dataclass(kw_only=True)
class Measured:
    """The measurement: `found` by the names of the predictions, `also` without one.

    `reasons` explain figures outside of their predicted range, from other measurements.
    """

    found: dict[str, Interval] = field(default_factory=dict)
    also: dict[str, Measurement] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: str = ""

    def add(self, name: str, what: str, unit: str, value: Interval | float) -> None:
        """Add a figure without a prediction."""
        if not isinstance(value, Interval):
            value = exactly(value)
        self.also[name] = Measurement(
            what=what, unit=unit, low=value.low, value=value.value, high=value.high
        )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One law. Its file's docstring is its documentation, under fixed headings."""

    name: str
    document: str
    predict: Callable[[Machine, Probe], Predictions]
    measure: Callable[[Bench, Probe], Measured]
    probe: Callable[[Bench], Probe] | None = None
    # Its duration, for the progress bar, measured on a CPU with two cores.
    seconds: float = 10.0
    # It starts a profiler or slows its process in another way, so it is run last.
    marks_process: bool = False

    @property
    def title(self) -> str:
        return self.document.strip().splitlines()[0].rstrip(".")

    @property
    def claim(self) -> str:
        return self.section("The claim")

    def section(self, heading: str) -> str:
        """The text under one of the headings, as one paragraph."""
        lines: list[str] = []
        inside = False
        for line in self.document.splitlines():
            if line.strip() in HEADINGS:
                inside = line.strip() == heading
            elif inside:
                lines.append(line.strip())
        return " ".join(filter(None, lines))


def around(
    value: float,
    what: str,
    unit: str = "",
    *,
    within: float = TOLERANCE,
    rests_on: tuple[str, ...] = (),
) -> Prediction:
    """A prediction that holds within a factor, up or down."""
    return Prediction(
        low=value / within,
        value=value,
        high=value * within,
        what=what,
        unit=unit,
        rests_on=list(rests_on),
    )


def between(
    low: float,
    value: float,
    high: float,
    what: str,
    unit: str = "",
    *,
    rests_on: tuple[str, ...] = (),
) -> Prediction:
    """A prediction with its own interval."""
    return Prediction(
        low=low, value=value, high=high, what=what, unit=unit, rests_on=list(rests_on)
    )


def exactly(value: float) -> Interval:
    """A figure that was counted, or that follows from others, without a spread of its own."""
    return Interval(low=value, value=value, high=value)
