"""Starting one trial in a process of its own, and ending it when it does not end by itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boundby.capture.process.execution import Target
from boundby.prove import trial_result as observation
from boundby.prove.forks import Forks, NurseryDiedError
from boundby.prove.trial_result import TrialResult

# Experiment loggers that have a switch for it record nothing outside this machine.
_OFFLINE = {
    "BOUNDBY": "1",
    "WANDB_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "SWANLAB_MODE": "offline",
}
# Where torch.compile keeps what it made for the next time.
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_TAIL = 4000
_LATE = "it did not end in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all trials of one script share."""

    target: Target
    step_by: str = "auto"
    steps: int = 15
    plugins: Sequence[str] = ()
    logs: Path | None = None
    search_path: Sequence[str] = ()  # what python is to find modules in, where it is not usual
    imports: Path | None = None  # where a fresh run notes what the script imports
    compiled: Path | None = None  # where compilers keep what they made for the next trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One process to be run: which treatments, with which dropout seed, for how long at most."""

    arm: tuple[str, ...]
    seed: int
    reference: bool = False
    compared: bool = True  # by what it computes; if not, it is timed and left alone
    has_dropout: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    forked: bool = False  # from a prepared process
    limit_s: float
    ends_with_budget: bool = False  # its limit is the end of the time to spend, not a hang

    @property
    def nudged(self) -> bool:
        """The first baseline as it is; those after it show how much a rounding error becomes."""
        return not self.arm and not self.reference and self.seed > 1

    @property
    def exact(self) -> bool:
        """Whether its first steps run without dropout.

        One process of each fix is compared so. What is compiled then has to be compiled again with
        dropout, which the others of a fix are spared.
        """
        return not self.arm or self.seed == 1 or not self.has_dropout


def observe(
    setting: Setting, wanted: Wanted, *, folder: Path, cwd: Path, forks: Forks | None = None
) -> TrialResult:
    """Run it and come back with what it saw, or why it saw nothing."""
    prepared_s = 0.0
    if wanted.forked and forks is not None:
        prepared_s = -forks.seconds
        is_ready = forks.prepare(cwd)
        prepared_s += forks.seconds
        if not is_ready:
            return _not_forked(wanted, forks.refusal or "", prepared_s)
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    _notes_of_files(result).unlink(missing_ok=True)
    spec = folder / "spec.json"
    spec.write_text(json.dumps(_spec(setting, wanted, result)))
    log = _log_file(setting, wanted, folder)
    began = time.monotonic()
    if wanted.forked and forks is not None:
        problem = _run_forked(forks, spec, log, wanted, cwd)
    else:
        found = environment(wanted.environment, setting.search_path, setting.compiled)
        problem = _run(spec, log, wanted, cwd, found)
    if setting.imports is not None and _notes_of_imports(result).exists():
        shutil.move(_notes_of_imports(result), setting.imports)
    known: dict[str, Any] = {
        "arm": list(wanted.arm),
        "reference": wanted.reference,
        "seed": wanted.seed,
        "seconds": time.monotonic() - began,
        "start": "forked" if wanted.forked else "fresh",
        "not_forked": forks.refusal if wanted.forked and forks is not None else None,
        "prepared_s": prepared_s,
        "not_prepared": forks.stopped if prepared_s and forks is not None else None,
        "log": str(log),
        "wrote": _written(_notes_of_files(result)),
    }
    if not result.exists() and problem is _LATE and wanted.ends_with_budget:
        return TrialResult(**{**known, "cut": True, "problem": "the budget ended while it ran"})
    if problem is _LATE:
        problem = f"no end after {wanted.limit_s:.0f} s: it hangs, or compiles for ever"
    if not result.exists():
        words = problem or "the process ended without a result"
        return TrialResult(**{**known, "problem": words})
    return observation.read(result.read_bytes(), **known)


def _not_forked(wanted: Wanted, why: str, prepared_s: float) -> TrialResult:
    """Nothing was run: it is to be a fresh process then."""
    return TrialResult(
        arm=list(wanted.arm),
        seed=wanted.seed,
        reference=wanted.reference,
        start="forked",
        not_forked=why,
        prepared_s=prepared_s,
        problem=f"all processes are fresh ones: {why}",
        cut=True,
    )


def _notes_of_files(result: Path) -> Path:
    return result.with_name("written.txt")


def _notes_of_imports(result: Path) -> Path:
    return result.with_name("imports.json")


def _written(notes: Path) -> list[str]:
    """The files that a process opened for writing, in the order in which it did."""
    if not notes.exists():
        return []
    return list(
        dict.fromkeys(os.fsdecode(line) for line in notes.read_bytes().split(b"\0") if line)
    )


def _spec(setting: Setting, wanted: Wanted, result: Path) -> dict[str, Any]:
    target = setting.target
    return {
        "target": {"name": target.name, "args": list(target.args), "is_module": target.is_module},
        "treatments": list(wanted.arm),
        "plugins": list(setting.plugins),
        "seed": wanted.seed,
        "compared": wanted.compared,
        "nudged": wanted.nudged,
        "exact": wanted.exact,
        "has_dropout": wanted.has_dropout,
        "reference": wanted.reference,
        "steps": setting.steps,
        "step_by": setting.step_by,
        "patience_s": wanted.limit_s / 2,
        "imports": str(_notes_of_imports(result)) if _notes_imports(setting, wanted) else None,
        "began_s": time.monotonic(),
        "result": str(result),
        "files": str(_notes_of_files(result)),
    }


def _notes_imports(setting: Setting, wanted: Wanted) -> bool:
    """The first process of all does: it is a fresh one, and the script as it is."""
    if setting.imports is None or setting.imports.exists():
        return False
    return not wanted.arm and not wanted.forked and not wanted.environment


def _log_file(setting: Setting, wanted: Wanted, folder: Path) -> Path:
    kept = setting.logs or folder
    name = "reference" if wanted.reference else "+".join(wanted.arm) or "baseline"
    name = name.replace("/", "-").replace(":", "-")
    handle, path = tempfile.mkstemp(prefix=f"{name}.", suffix=".log", dir=kept)
    os.close(handle)
    return Path(path)


def _run(
    spec: Path, log: Path, wanted: Wanted, cwd: Path, environment: Mapping[str, str]
) -> str | None:
    """Why the process did not come to its own end; None where it did."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "boundby.prove.worker", str(spec)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=wanted.limit_s)
        except subprocess.TimeoutExpired:
            return _LATE
        finally:
            _end_group(process)
    return _reason(code, log)


def _run_forked(forks: Forks, spec: Path, log: Path, wanted: Wanted, cwd: Path) -> str | None:
    try:
        code = forks.run(spec, log, limit_s=wanted.limit_s, cwd=cwd)
    except NurseryDiedError:
        forks.close()
        forks.refusal = "the prepared process died"
        return forks.refusal
    return _LATE if code is None else _reason(code, log)


def environment(
    extra: Mapping[str, str], search_path: Sequence[str] = (), compiled: Path | None = None
) -> dict[str, str]:
    """What a script under trial finds in its environment.

    `compiled`: where compilers keep what they made, so that nothing of a trial is found elsewhere.
    """
    found = {**os.environ, **_OFFLINE, **extra}
    if compiled is not None:
        found[COMPILED] = str(compiled)
    if search_path:
        found["PYTHONPATH"] = os.pathsep.join(search_path)
    return found


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and all it has started, in its own group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(code: int, log: Path) -> str | None:
    if code < 0:
        name = signal.Signals(-code).name
        word = ": out of memory?" if name == "SIGKILL" else ""
        return f"ended by {name}{word}"
    if code == 0:
        return None
    lines = log.read_bytes()[-_TAIL:].decode(errors="replace").strip().splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("Traceback (")]
    # What was raised stands under its traceback, and may go on over more lines.
    raised = (
        [line for line in lines[starts[-1] + 1 :] if line[:1].strip()] if starts else lines[-1:]
    )
    return raised[0].strip() if raised else f"exit code {code}"
