"""Observations that `boundby run --out` saved."""

from __future__ import annotations

from pathlib import Path

from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation
from boundby.model.observation_file import is_observation, read_observation


class SavedSource:
    """`observation.bin`."""

    name = "saved observation"

    def recognises(self, path: Path) -> bool:
        return is_observation(path)

    def observe(
        self, path: Path, *, index: int | None = None, wall_ns: float | None = None
    ) -> list[Observation]:
        """The observation as it was saved: it contains one step, whose time is known."""
        if index is not None or wall_ns is not None:
            raise BoundbyError(
                f"{path}: a saved observation has one step with its time: omit --index and --wall"
            )
        return [read_observation(path)]
