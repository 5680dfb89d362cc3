"""A predicted quantity with its range."""

from __future__ import annotations

from boundby.model.record import Record


class Estimate(Record, frozen=True, kw_only=True):
    low: float
    expected: float
    high: float
