"""What a trial's process wrote down, and how the process ended."""

from __future__ import annotations

import statistics

import msgspec

from boundby.model.record import Record


class Input(Record, frozen=True, kw_only=True):
    """A fingerprint of a tensor: whole numbers by their sum, others by some values."""

    shape: list[int]
    sum: int | None = None
    values: list[float] | None = None


class Call(Record, frozen=True, kw_only=True):
    """An outermost call with dropout off: what went in, and samples of what came out."""

    step: int
    inputs: list[Input]
    outputs: list[list[float]]


class Notes(Record, frozen=True, kw_only=True):
    """What the program computed in its first steps; `losses` by step."""

    losses: list[list[float]] = []
    gradients: list[float] = []
    calls: list[Call] = []
    dropouts: int = 0
    draws_exact: bool = False  # random numbers inside the model although dropout is off
    draws_seeded: bool = False
    precision: str | None = None
    modules: list[str] = []
    exact: bool = True  # whether its first steps ran without dropout

    @property
    def has_dropout(self) -> bool:
        return self.dropouts > 0 or self.draws_seeded


class Observed(Record, frozen=True, kw_only=True):
    """One process. `problem` is why it counts for nothing."""

    arm: list[str]  # treatments, by key; none of them is the baseline
    reference: bool = False
    seed: int = 0
    seconds: float = 0.0
    kind: str | None = None
    samples_ns: list[float] = []
    warmup_ns: list[float] = []
    peak_bytes: float | None = None
    notes: Notes = Notes()
    touched: dict[str, int] = {}
    wrote: list[str] = []  # files that the script opened for writing
    graphs_while_clean: int = 0
    problem: str | None = None
    cut: bool = False  # the budget ended before it did
    log: str | None = None

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns)


def read(content: bytes, **known: object) -> Observed:
    """What the worker wrote, with what its parent knows."""
    written = msgspec.json.decode(content)
    return msgspec.convert(written | known, Observed)
