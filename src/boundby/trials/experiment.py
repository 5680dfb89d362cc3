"""A whole proof: diagnose, try what was found, save after each run, say what to write."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from boundby import store
from boundby.capture.live.execution import Target
from boundby.errors import CANNOT_MEASURE, BoundbyError
from boundby.model.diagnosis import Diagnosis
from boundby.trials import process, progress, scratch
from boundby.trials.candidates import candidates_of, check_faults
from boundby.trials.combination import Candidate
from boundby.trials.ledger import BASELINE, Ledger
from boundby.trials.observation import Observed
from boundby.trials.patch import Known, Patch, make_patch
from boundby.trials.proving import Progress, Trials

_MOST_FILES_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks for."""

    target: Target
    budget_s: float = 600.0
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    everything: bool = False
    limit_s: float | None = None
    steps: int = 15
    step_by: str = "auto"
    diagnosis: Diagnosis | None = None
    machine_file: Path | None = None
    plugins: Sequence[str] = ()
    logs: Path | None = None
    scratch: bool = False
    resume: bool = False
    search_path: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The diagnosis with its proofs, what was kept as a patch, and whether it was cut short."""

    diagnosis: Diagnosis
    patch: Patch | None
    interrupted: bool


def prove_target(request: Request, report: Progress = lambda *_: None) -> Proven:
    """Prove what can be proven of a script; Ctrl-C keeps what was done by then."""
    _load_plugins(request.plugins)
    check_faults(request.only, request.skip)
    cwd = Path.cwd()
    before = scratch.files_in(cwd)
    saved_at = progress.path_for(request.target, cwd)
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boundby-")))
        place = _place(request, cwd, temporary)
        saved = progress.load(saved_at) if request.resume else None
        if saved is not None:
            diagnosis = saved.diagnosis
        else:
            report("diagnosing", 0.0)
            diagnosis = request.diagnosis or _diagnose(request, place())
            progress.save(saved_at, diagnosis, [], 0.0)
        candidates = candidates_of(
            diagnosis, only=request.only, skip=request.skip, everything=request.everything
        )
        trials = _trials(request, candidates, temporary, saved, place)
        interrupted = False

        def on_observed(_: Observed) -> None:
            progress.save(saved_at, diagnosis, trials.ledger.observed, trials.elapsed_s)

        try:
            if candidates:
                trials.run(report, on_observed)
        except KeyboardInterrupt:
            interrupted = True
    notes = _notes(request, cwd, before, interrupted)
    proven = msgspec.structs.replace(
        diagnosis, proofs=trials.proofs(diagnosis), warnings=[*diagnosis.warnings, *notes]
    )
    patch = _patch(request, trials, diagnosis)
    return Proven(diagnosis=proven, patch=patch, interrupted=interrupted)


def _load_plugins(plugins: Sequence[str]) -> None:
    if plugins and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for plugin in plugins:
        try:
            importlib.import_module(plugin)
        except ModuleNotFoundError:
            raise BoundbyError(f"no module named {plugin} for --plugin") from None


def _place(request: Request, cwd: Path, temporary: Path) -> Callable[[], Path]:
    """The folder that the next process is to run in."""
    if not request.scratch:
        return lambda: cwd
    if not request.target.is_module and Path(request.target.name).is_absolute():
        raise BoundbyError("--scratch needs the script's path relative to this folder")
    scratch.check_copy(cwd)
    return lambda: scratch.copy_of(cwd, temporary)


def _trials(
    request: Request,
    candidates: Sequence[Candidate],
    temporary: Path,
    saved: progress.Saved | None,
    place: Callable[[], Path],
) -> Trials:
    if request.logs is not None:
        request.logs.mkdir(parents=True, exist_ok=True)
    setting = process.Setting(
        target=request.target,
        step_by=request.step_by,
        steps=request.steps,
        plugins=request.plugins,
        logs=request.logs.absolute() if request.logs is not None else _logs_folder(),
        search_path=request.search_path,
    )
    return Trials(
        observe=lambda wanted: process.observe(setting, wanted, folder=temporary, cwd=place()),
        candidates=candidates,
        ledger=ledger_of(candidates, saved.observed if saved is not None else ()),
        budget_s=request.budget_s,
        limit_s=request.limit_s,
        elapsed_s=saved.elapsed_s if saved is not None else 0.0,
    )


def ledger_of(candidates: Sequence[Candidate], observed: Sequence[Observed]) -> Ledger:
    return Ledger(
        observed,
        precisions={one.key: one.precision for one in candidates},
        environments={one.key for one in candidates if one.environment},
        preparations={one.key: one.preparation_s for one in candidates},
    )


def _logs_folder() -> Path:
    """Logs outlive the proof: those of runs that failed are named in the report."""
    return Path(tempfile.mkdtemp(prefix="boundby-logs-"))


def _diagnose(request: Request, cwd: Path) -> Diagnosis:
    """That of `boundby run`, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
        path = Path(folder) / "diagnosis.json"
        options = ["--quiet", "--json", str(path), "--step-by", request.step_by]
        if request.machine_file is not None:
            options += ["--machine", str(request.machine_file.absolute())]
        target = request.target
        name = ["-m", target.name] if target.is_module else [target.name]
        done = subprocess.run(
            [sys.executable, "-m", "boundby", "run", *options, *name, *target.args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env=process.environment({}, request.search_path),
        )
        if not path.exists():
            lines = done.stderr.strip().splitlines()
            why = lines[-1].removeprefix("boundby: ") if lines else "no diagnosis came of it"
            raise BoundbyError(why, exit_code=done.returncode or CANNOT_MEASURE)
        return store.read(path, Diagnosis, "diagnosis")


def _notes(request: Request, cwd: Path, before: scratch.Files, interrupted: bool) -> list[str]:
    notes = []
    if interrupted:
        notes.append("interrupted: the same command with --resume goes on from here")
    written = scratch.written(before, scratch.files_in(cwd))
    if request.logs is not None:
        logs = request.logs.absolute()
        written = [name for name in written if logs not in (cwd / name).parents]
    if written:
        named = ", ".join(written[:_MOST_FILES_NAMED])
        more = f" and {len(written) - _MOST_FILES_NAMED} more" * (len(written) > _MOST_FILES_NAMED)
        notes.append(f"the script wrote files while it was measured: {named}{more}")
    return notes


def _patch(request: Request, trials: Trials, diagnosis: Diagnosis) -> Patch | None:
    """What was kept, as a change to the script."""
    final = trials.final
    path = _script_path(request.target)
    timed = trials.ledger.timed(BASELINE)
    if path is None or not timed or not trials.ledger.result(final).held:
        return None
    chosen = {one.key: one.change for one in trials.candidates}
    return make_patch(
        path,
        [(key.partition("/")[2], chosen[key]) for key in final],
        Known(modules=timed[0].notes.modules, device=diagnosis.machine.kind),
    )


def _script_path(target: Target) -> Path | None:
    if not target.is_module:
        return Path(target.name)
    try:
        spec = importlib.util.find_spec(target.name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
