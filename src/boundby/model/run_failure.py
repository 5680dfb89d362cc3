"""The reason why a run gave no diagnosis, for the process that started it."""

from __future__ import annotations

import os
from pathlib import Path

from boundby.model import SCHEMA, Record, store

# Where a run that was started by `boundby prove` writes its failure, instead of on stderr.
_VARIABLE = "BOUNDBY_FAILURE_FILE"


class RunFailure(Record, frozen=True, kw_only=True):
    """`by_script`: the script itself failed; its own message is on stderr."""

    reason: str
    schema: int = SCHEMA
    by_script: bool = False


def write_to(path: Path) -> dict[str, str]:
    """The environment of a run that writes its failure to a file."""
    return {_VARIABLE: str(path)}


def is_written(failure: RunFailure) -> bool:
    """Write the failure for the process that requested it; False if none did."""
    path = os.environ.get(_VARIABLE)
    if path is None:
        return False
    store.write(failure, Path(path))
    return True


def read(path: Path) -> RunFailure | None:
    """The failure of a run, if it wrote one."""
    return store.read(path, RunFailure, "failure") if path.exists() else None
