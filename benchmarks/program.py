"""What is known of a public program before it runs: where it is, how it is started, what it
reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from programs_data import Make


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program: `ends` False for those that train for ever, which are ended after a while.

    `path` and `data` are relative to the repository, `folder` is where it is started.
    """

    name: str
    repository: str
    path: str
    step: str
    args: str = ""
    folder: str | None = None
    data: Sequence[tuple[Make, str]] = ()
    ends: bool = True
    needs: Sequence[str] = ()  # folders on PYTHONPATH
    module: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def start(self) -> str:
        """The folder that the program is started in."""
        return self.path.rpartition("/")[0] if self.folder is None else self.folder
