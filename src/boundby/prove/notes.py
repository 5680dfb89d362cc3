"""Notes of a proof: what ended it early, what was not tried, which files the script wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from boundby.model import Note
from boundby.model.diagnosis import Diagnosis
from boundby.prove import files
from boundby.prove.candidate import Candidate
from boundby.prove.candidates import Choice, fixes_for_other_devices
from boundby.prove.evidence import Evidence
from boundby.prove.launch import COMPILED
from boundby.prove.settled import untried_names

_CACHE_FOLDERS = (COMPILED, "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME")


def of_the_run(
    ended: Sequence[str], *, late: str | None, no_time: str | None, interrupted: bool
) -> list[Note]:
    """Why it was cut short. `ended`: why the script ended; `late`: that the diagnosis did not end;
    `no_time`: that no fix was tried."""
    notes = [Note(code="script-ended", text=text) for text in ended]
    if late is not None:
        notes.append(Note(code="not-diagnosed", text=late))
    if interrupted:
        text = "interrupted: the results until then are shown"
        notes.append(Note(code="interrupted", text=text))
    elif no_time is not None:
        notes.append(Note(code="no-fix-tried", text=no_time))
    return notes


def of_fixes(
    evidence: Evidence, candidates: Sequence[Candidate], diagnosis: Diagnosis, choice: Choice
) -> list[Note]:
    """Fixes that were not tried."""
    notes = []
    untried = untried_names(evidence, candidates)
    if untried and evidence.steps:
        text = f"not tried within the budget: {', '.join(untried)}; no finding suggests them"
        notes.append(Note(code="fixes-not-tried", text=text))
    kind = diagnosis.machine.kind
    return notes + [
        Note(
            code="fix-not-applicable",
            text=f"{name} was not tried: it has no effect on a {kind} device",
        )
        for name in fixes_for_other_devices(diagnosis, choice)
    ]


def of_files(written: Sequence[str], folder: Path, logs: Path | None) -> list[Note]:
    """The files that the script wrote, without those of caches."""
    caches = [os.environ.get(name) for name in _CACHE_FOLDERS]
    ours = [Path(one).absolute() for one in (*caches, logs) if one]
    return files.note_of(files.remaining_files(written, folder, ours))
