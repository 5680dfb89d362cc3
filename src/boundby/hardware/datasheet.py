"""Figures of the vendors: one table of chips, matched by the names that drivers report."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Literal

import msgspec

from boundby.model import Record

# A part of a card (vGPU, partition) reports the card's name with less memory: no match then.
_MEMORY_TOLERANCE = 0.25
_BILLION = 1e9  # definition


class Figure(Record, frozen=True, kw_only=True):
    """A dense peak: FLOP/s, OP/s or B/s. `unsure` where sources disagree."""

    value: float
    source: str
    unsure: bool = False


class Fabric(Record, frozen=True, kw_only=True):
    """How chips are connected: the fast domain, and each chip's bandwidth out of it, in bytes/s.

    `units` are the SMs, compute units or matrix units that share one product. On a torus,
    `axis_link` is one link's one-way rate, and an axis of a multiple of `wraps_at` is a ring.
    """

    kind: Literal["switch", "mesh", "torus", "pcie"]
    reduces: bool = False  # sums inside the switch
    domain: int
    egress: float
    units: int
    source: str
    axis_link: float | None = None
    pod: list[int] = []
    wraps_at: int = 1


class Chip(Record, frozen=True, kw_only=True):
    """One chip of the table. `sustained` are rates kept at the power limit, where known.

    `shared_names` are reported for many chips, which only the memory size tells apart.
    """

    name: str
    vendor: str
    matches: list[str]
    shared_names: list[str] = []
    not_matches: list[str] = []
    memory_gb: float
    figures: dict[str, Figure]
    sustained: dict[str, Figure] = {}
    fabric: Fabric | None = None

    def match_length(self, device_name: str, *, memory_known: bool) -> int:
        """The length of the longest of its names that is in the device's name; 0 for no match."""
        if any(_has_words(device_name, words) for words in self.not_matches):
            return 0
        names = [*self.matches, *(self.shared_names if memory_known else [])]
        return max((len(words) for words in names if _has_words(device_name, words)), default=0)


class _Table(Record, frozen=True, kw_only=True):
    sources: dict[str, str]
    chip: list[Chip]


@functools.cache
def _table() -> _Table:
    # Made from chips.toml by scripts/make_chips.py.
    return msgspec.json.decode(Path(__file__).with_name("chips.json").read_bytes(), type=_Table)


def chips() -> list[Chip]:
    """Every chip of the table."""
    return _table().chip


def source(key: str) -> str:
    """The source of a figure, in words."""
    return _table().sources[key]


def find_chip(device_name: str, memory_bytes: int | None = None) -> Chip | None:
    """The chip of a driver's name: the longest match, then the nearest memory size."""
    memory_known = memory_bytes is not None
    matches = [
        (chip.match_length(device_name, memory_known=memory_known), chip) for chip in chips()
    ]
    longest = max(length for length, _ in matches)
    if not longest:
        return None
    candidates = [chip for length, chip in matches if length == longest]
    if memory_bytes is None:
        return candidates[0]
    reported = memory_bytes / _BILLION
    nearest = min(candidates, key=lambda chip: abs(chip.memory_gb - reported))
    off = abs(nearest.memory_gb - reported) / nearest.memory_gb
    return nearest if off <= _MEMORY_TOLERANCE else None


def find_unnamed(vendor: str, processors: int, memory_bytes: int) -> Chip | None:
    """The chip of a vendor with this number of processors, and the nearest memory size; None for
    none."""
    reported = memory_bytes / _BILLION
    candidates = [
        chip
        for chip in chips()
        if chip.vendor == vendor.lower()
        and chip.fabric is not None
        and chip.fabric.units == processors
        and abs(chip.memory_gb - reported) <= _MEMORY_TOLERANCE * chip.memory_gb
    ]
    return min(candidates, key=lambda chip: abs(chip.memory_gb - reported), default=None)


def _has_words(text: str, words: str) -> bool:
    pattern = rf"(?<![a-z0-9]){re.escape(words.lower())}(?![a-z0-9])"
    return re.search(pattern, text.lower()) is not None
