"""A fix that is worth measuring on one program."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from boundby.fixes.fix import Scope
from boundby.model.estimate import Estimate


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One fix, the faults it removes, and the speed-up that the diagnosis predicts for it.

    `requested`: the user named it, so it is tried even without a finding. `user_defined`: a user's
    own fix, which need not report what it changes. `without_finding`: the diagnosis does not
    suggest it; it is tried because that costs only a few steps.
    """

    key: str  # FAULT/FIX
    faults: tuple[str, ...]
    change: str
    scope: Scope = "step"
    framework: str = "torch"
    predicted: Estimate | None = None
    precision: str | None = None
    excludes: frozenset[str] = frozenset()
    environment: dict[str, str] = {}
    preparation_s: float = 0.0
    slot: str = ""
    covers: tuple[str, ...] = ()
    requested: bool = False
    user_defined: bool = False
    without_finding: bool = False
    needs_cores: bool = False
    keeps_compiled: bool = False

    @property
    def fix(self) -> str:
        return self.key.partition("/")[2]

    def is_alternative_to(self, other: Candidate) -> bool:
        """Whether the two are alternatives for the same change."""
        if self.slot or other.slot:
            return self.slot == other.slot
        return self.faults[0] == other.faults[0]

    def is_compatible_with(self, others: Sequence[Candidate]) -> bool:
        return not any(
            self.is_alternative_to(other)
            or not other.excludes.isdisjoint(self.faults)
            or not self.excludes.isdisjoint(other.faults)
            or any(
                self.environment.get(name, value) != value
                for name, value in other.environment.items()
            )
            for other in others
        )


_BY_PRECISION = ["float64", "float32", "tf32", "float16", "bfloat16"]


def lowest_precision(candidates: Sequence[Candidate]) -> str | None:
    lowered = [one.precision for one in candidates if one.precision is not None]
    return max(
        lowered,
        key=lambda one: _BY_PRECISION.index(one) if one in _BY_PRECISION else math.inf,
        default=None,
    )
