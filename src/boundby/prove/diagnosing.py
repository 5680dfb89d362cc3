"""The diagnosis of a script, in a separate process.

A process stays slower after it has run the profiler, which would distort later measurements in it:
on an H200, steps of 56 ms took 78 ms.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from boundby.model import Machine, run_failure, store, units
from boundby.model.account import Account, Group, Verdict
from boundby.model.diagnosis import Diagnosis, StepTimes
from boundby.model.errors import CANNOT_MEASURE, BoundbyError
from boundby.model.run_failure import RunFailure
from boundby.prove.candidate import Candidate
from boundby.prove.launch import Setting, ended, ended_by, exit_code, started


def diagnose_script(
    setting: Setting, *, machine_file: Path | None, cwd: Path, limit_s: float
) -> Diagnosis | None:
    """The diagnosis by `boundby run`; None if it takes longer than `limit_s`."""
    path, failure_file = setting.folder / "diagnosis.json", setting.folder / "failure.json"
    options = ["--quiet", "--json", str(path), "--step-by", setting.step_by]
    if machine_file is not None:
        options += ["--machine", str(machine_file.absolute())]
    target = setting.target
    name = ["-m", target.name] if target.is_module else [target.name]
    with tempfile.TemporaryFile("w+") as errors:
        with started(
            setting,
            ["-m", "boundby", "run", *options, *name, *target.args],
            run_failure.write_to(failure_file),
            cwd=cwd,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as processes:
            late = not ended(processes, limit_s)
            code = exit_code(processes)
        if path.exists():
            return store.read(path, Diagnosis, "diagnosis")
        if late:
            return None
        errors.seek(0)
        raise BoundbyError(
            _failure_reason(run_failure.read(failure_file), errors.read(), code),
            exit_code=max(code, 0) or CANNOT_MEASURE,
        )


def first_line(diagnosis: Diagnosis, candidates: Sequence[Candidate], seconds: float) -> str:
    """The line on the finished diagnosis: what it found, and which fixes will be tried."""
    names = (
        ", ".join(candidate.fix for candidate in candidates if not candidate.without_finding)
        or "nothing"
    )
    without_finding = ", ".join(
        candidate.fix for candidate in candidates if candidate.without_finding
    )
    return (
        f"diagnosed: {diagnosis.step.kind}, {units.time(diagnosis.step.wall_ns)} a step, bound by "
        f"{diagnosis.verdict.bound_by} ({seconds:.0f} s); to be tried: {names}"
        + f"; then, since they are quick to try: {without_finding}"
        * bool(without_finding)
    )


def start_s_of(diagnosis: Diagnosis) -> float | None:
    """How long the script took until its first step, if that was recorded."""
    if diagnosis.run is None:
        return None
    before = [part.ns for part in diagnosis.run.parts if part.name in ("import", "setup")]
    return sum(before) / 1e9


def undiagnosed() -> Diagnosis:
    """A diagnosis in which everything is unknown, if the real one did not end in time."""
    kind = "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    nothing = Group()
    return Diagnosis(
        machine=Machine(device="unknown", kind=kind),
        step=StepTimes(
            kind="step", wall_ns=0.0, wall_source="warm-up", wall_interval_ns=(0.0, 0.0)
        ),
        account=Account(compute=nothing, bandwidth=nothing, overhead=nothing, unknown=nothing),
        verdict=Verdict(bound_by="unknown", uncertain=True, why="the diagnosis did not end"),
    )


def _failure_reason(failure: RunFailure | None, errors: str, code: int) -> str:
    """Why there is no diagnosis: the error of the run, and the last line of a script that
    failed."""
    if failure is not None and not failure.by_script:
        return failure.reason
    last = [line.strip() for line in errors.splitlines() if line.strip()][-1:]
    if failure is not None:
        words = [failure.reason]
    elif code < 0:
        words = [f"the script's process, while it was diagnosed, was {ended_by(code)}"]
    else:
        words = ["the script's process gave no diagnosis"]
    return "; ".join([*words, *(f"its last line: {line}" for line in last)])
