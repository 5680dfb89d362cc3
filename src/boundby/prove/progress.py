"""An experiment saved after each of its processes, so that it can be gone on with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import platformdirs

from boundby.capture.process.execution import Target
from boundby.model import store
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from boundby.model.record import SCHEMA, Record
from boundby.prove.trial_result import TrialResult


class Saved(Record, frozen=True, kw_only=True):
    """What was done so far."""

    schema: int = SCHEMA
    diagnosis: Diagnosis
    observed: list[TrialResult] = []
    elapsed_s: float = 0.0


def path_for(target: Target, cwd: Path) -> Path:
    """One file for each script, with its arguments, in its folder."""
    key = json.dumps([str(cwd), target.name, list(target.args), target.is_module])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("boundby")) / "proofs" / f"{digest}.json"


def load(path: Path) -> Saved:
    if not path.exists():
        raise BoundbyError("nothing to resume: no proof of this script with these arguments")
    return store.read(path, Saved, "experiment")


def save(path: Path, diagnosis: Diagnosis, observed: list[TrialResult], elapsed_s: float) -> None:
    store.write(Saved(diagnosis=diagnosis, observed=observed, elapsed_s=elapsed_s), path)
