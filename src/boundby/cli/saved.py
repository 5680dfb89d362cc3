"""A diagnosis from whatever file a person has: a saved one, or the trace it would be made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boundby.model.diagnosis import Diagnosis


def read_diagnosis(path: Path) -> Diagnosis:
    """A saved diagnosis; a trace, or a folder of ranks, is diagnosed on the spot."""
    from boundby.model import store
    from boundby.model.diagnosis import Diagnosis
    from boundby.session import traces as job

    if path.is_dir() and (path / "diagnosis.json").exists():
        path = path / "diagnosis.json"  # as `boundby run --out` leaves it
    if path.is_dir() or path.name.endswith(".gz") or _is_trace(path):
        return job.load(path)
    return store.read(path, Diagnosis, "diagnosis")


def _is_trace(path: Path) -> bool:
    """Whether a file starts like a profiler's, which never has a schema of ours."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError:
        return False
    return b'"traceEvents"' in start or b'"schemaVersion"' in start or start.lstrip()[:1] == b"["
