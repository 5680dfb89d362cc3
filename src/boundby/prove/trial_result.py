"""What a trial's process wrote down, and how the process ended."""

from __future__ import annotations

import statistics
from typing import Literal

import msgspec

from boundby.model.record import Record

# A process of its own either way: begun from nothing, or forked from one that has imported alike.
Start = Literal["fresh", "forked"]


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
    gradients: list[float] = []  # norms, of the first step
    later_gradients: list[float] = []  # and of the last one without dropout
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


class LineTime(Record, frozen=True, kw_only=True):
    """Where a process's seconds went, one stage after the other; None where it did not come so far.

    `start_s` until the script began, `torch_s` until it had imported torch, `script_s` until its
    first step; then steps that are compared, that warm up, and that are timed; `ending_s` for
    writing it all down and going away.
    """

    start_s: float | None = None
    torch_s: float | None = None
    script_s: float | None = None
    compared_s: float | None = None
    warmup_s: float | None = None
    clean_s: float | None = None
    ending_s: float | None = None

    def stages(self) -> dict[str, float]:
        """Seconds by name, as far as it came."""
        every = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name.removesuffix("_s"): s for name, s in every.items() if s is not None}

    @property
    def before_steps_s(self) -> float | None:
        if self.script_s is None:
            return None
        return (self.start_s or 0.0) + (self.torch_s or 0.0) + self.script_s


class TrialResult(Record, frozen=True, kw_only=True):
    """One process. `problem` is why it counts for nothing."""

    arm: list[str]  # treatments, by key; none of them is the baseline
    reference: bool = False
    seed: int = 0
    start: Start = "fresh"
    not_forked: str | None = None  # why it was not, where a fork was wanted
    prepared_s: float = 0.0  # that went into what it was forked from, before its own seconds
    not_prepared: str | None = None  # why some of the script's imports are left to the forks
    seconds: float = 0.0
    spent: LineTime = LineTime()
    kind: str | None = None
    samples_ns: list[float] = []
    warmup_ns: list[float] = []
    pace_ns: list[float] = []  # of the host: an addition in Python, between the steps
    peak_bytes: float | None = None
    notes: Notes = Notes()
    touched: dict[str, int] = {}
    wrote: list[str] = []  # files that the script opened for writing
    graphs_while_clean: int = 0
    problem: str | None = None
    reported: bool = False  # the process wrote down itself how it ended
    cut: bool = False  # the budget ended before it did
    log: str | None = None

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns)


def read(content: bytes, *, seconds: float, **known: object) -> TrialResult:
    """What the worker wrote, with what its parent knows."""
    written = msgspec.json.decode(content)
    spent = written["spent"]
    spent["ending_s"] = max(0.0, seconds - sum(spent.values()))
    found = {**written, **known, "seconds": seconds, "reported": True}
    return msgspec.convert(found, TrialResult)
