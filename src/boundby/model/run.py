"""The wall time of a whole run, divided into its parts."""

from __future__ import annotations

from typing import Literal

from boundby.model.record import Record

RunPartName = Literal[
    "import",
    "setup",
    "compile",
    "train",
    "eval",
    "checkpoint",
    "logging",
    "data_start",
    "idle",
    "other",
]


class RunPart(Record, frozen=True, kw_only=True):
    """A part of the run. `extrapolated`: a part of it was not observed but computed from steps."""

    name: RunPartName
    ns: float
    share: float
    extrapolated: bool = False


class RunParts(Record, frozen=True, kw_only=True):
    """The parts add up to `wall_ns`."""

    wall_ns: float
    parts: list[RunPart] = []
