"""The record of one assumed number."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

Number = TypeVar("Number", int, float)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Assumption(Generic[Number]):
    """A number that was neither measured on the machine nor follows from a definition."""

    value: Number
    low: Number
    high: Number
    unit: str
    meaning: str
    source: str

    @property
    def low_to_high(self) -> tuple[Number, Number, Number]:
        """Worst, expected and best case of a number that is better when it is larger."""
        return self.low, self.value, self.high

    @property
    def high_to_low(self) -> tuple[Number, Number, Number]:
        """Worst, expected and best case of a number that is better when it is smaller."""
        return self.high, self.value, self.low
