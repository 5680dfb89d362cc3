"""A diagnosis from any file: saved, or made from an observation or a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boundby.model.diagnosis import Diagnosis


def read_diagnosis(path: Path) -> Diagnosis:
    """A saved diagnosis; a saved observation, a trace or a folder of ranks is analysed now."""
    from boundby.capture import sources
    from boundby.model import store
    from boundby.model.diagnosis import Diagnosis
    from boundby.session import saved
    from boundby.session import traces as job

    if path.is_dir() and not saved.holds_observation(path):
        written = path / saved.DIAGNOSIS  # written by an older version
        path = written if written.exists() else path
    if path.is_dir() or (not store.is_saved(path) and sources.is_trace(path)):
        return job.load(path)
    return store.read(path, Diagnosis, "diagnosis")
