"""Measured fixes: step times without and with a fix, and whether its results are right."""

from __future__ import annotations

import enum

from boundby.model.estimate import Estimate
from boundby.model.record import Record


class Speedup(Record, frozen=True, kw_only=True):
    """Time before over time after: median and 95% interval."""

    low: float
    median: float
    high: float


class Peak(Record, frozen=True, kw_only=True):
    """Peak memory in bytes."""

    before: float | None = None
    after: float | None = None


class Outcome(enum.StrEnum):
    """The outcome of trying a fix."""

    KEPT = "kept"
    NO_GAIN = "no gain"
    INCONCLUSIVE = "inconclusive"  # the interval does not decide; more time may
    UNVERIFIED = "unverified"  # faster, but nothing could be compared
    WRONG_NUMBERS = "wrong numbers"
    FAILED = "failed"
    SKIPPED = "skipped"  # not measured, and why

    @classmethod
    def _missing_(cls, value: object) -> Outcome | None:
        return cls.SKIPPED if value == "not run" else None  # the name in schema 1


class Numerics(Record, frozen=True, kw_only=True):
    """Whether the changed program still computes the same.

    `tensor` is the one with the largest error, with its relative error and the tolerance.
    """

    ok: bool
    why: str
    verified: bool = True  # False: nothing could be compared
    tensor: str | None = None
    error: float | None = None
    tolerance: float | None = None

    @property
    def outcome(self) -> Outcome:
        if not self.verified:
            return Outcome.UNVERIFIED
        return Outcome.KEPT if self.ok else Outcome.WRONG_NUMBERS


class Proof(Record, frozen=True, kw_only=True):
    """A fix applied from outside and measured: step times of alternating blocks, without and with
    it.

    `fixes` are those applied together, by name, and `treatment` is their label. `against` is the
    label of the fixes that were applied on both sides; empty for the unchanged program. `replaces`
    is that of the fixes that were applied on the other side alone, because they exclude it.
    `fresh`: alternating processes of the script, instead of blocks of steps in one. `patched`:
    those of the script and of its patched copy.
    """

    faults: list[str]
    fixes: list[str] = []
    treatment: str = ""
    against: str = ""
    replaces: str = ""
    fresh: bool = False
    patched: bool = False
    before_ns: list[float] = []
    after_ns: list[float] = []
    speedup: Speedup | None = None
    predicted: Estimate | None = None  # as a speed-up
    peak_bytes: Peak = Peak()
    numerics: Numerics | None = None
    preparation_s: float | None = None  # its first use, such as compiling
    outcome: Outcome
    why: str = ""
    change: str = ""
    log: str | None = None
    open: bool = False  # more time may decide it

    @property
    def setting(self) -> str:
        """What it was measured with: the words that follow the name of the fix."""
        if self.patched:
            return " as a patch"
        if self.fresh:
            return " in fresh processes"
        beside = f" beside {self.against}" if self.against else ""
        return beside + (f" instead of {self.replaces}" if self.replaces else "")

    @property
    def combines(self) -> bool:
        """Whether it is several fixes together; one fix may remove several faults."""
        return len(self.fixes) > 1
