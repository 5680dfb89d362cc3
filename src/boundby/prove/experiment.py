"""A whole proof: diagnose, try what was found, save after each run, say what to write."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from boundby.capture.process.execution import Target
from boundby.model import Note, store, units
from boundby.model.diagnosis import Diagnosis, Estimate
from boundby.model.errors import BEFORE_A_STEP, CANNOT_MEASURE, BoundbyError
from boundby.prove import files, process, progress, scratch
from boundby.prove.candidates import Choice, candidates_of, pointless, promised
from boundby.prove.combination import Candidate, Foresee
from boundby.prove.forks import Forks
from boundby.prove.patch import Known, Patch, make_patch
from boundby.prove.proving import Progress, Trials
from boundby.prove.results import BASELINE, TrialStore
from boundby.prove.scheduler import words
from boundby.prove.trial_result import TrialResult

_MOST_FILES_NAMED = 8
_CACHE_FOLDERS = (process.COMPILED, "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME")
_OURS = "boundby: "  # what the command line's own lines begin with
_IMPORTS = ".imports"  # what the script imports, beside what was saved
# Past the budget by this much, a word is due.
_LONGER = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks for."""

    target: Target
    budget_s: float = 600.0
    choice: Choice = field(default_factory=Choice)
    limit_s: float | None = None
    steps: int = 15
    step_by: str = "auto"
    diagnosis: Diagnosis | None = None
    machine_file: Path | None = None
    plugins: Sequence[str] = ()
    logs: Path | None = None
    scratch: bool = False
    resume: bool = False
    fresh: bool = False  # no forks of a prepared process
    search_path: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The diagnosis with its proofs, what was kept as a patch, and whether it was cut short."""

    diagnosis: Diagnosis
    patch: Patch | None
    interrupted: bool


def prove_target(
    request: Request,
    report: Progress = lambda *_: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Proven:
    """Prove what can be proven of a script; Ctrl-C keeps what was done by then.

    `report` hears what is being run, `tell` what came of it. The budget is for all of it, the
    diagnosis included.
    """
    began = time.monotonic()
    _load_plugins(request.plugins)
    request.choice.check()
    cwd = Path.cwd()
    saved_at = progress.path_for(request.target, cwd)
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boundby-")))
        place = _place(request, cwd, temporary)
        saved = progress.load(saved_at) if request.resume else None
        if saved is None:
            report("diagnosing", 0.0)
            saved = progress.Saved(
                diagnosis=request.diagnosis or _diagnose(request, place()),
                observed=[],
                elapsed_s=time.monotonic() - began,
            )
            progress.save(saved_at, saved.diagnosis, saved.observed, saved.elapsed_s)
            saved_at.with_suffix(_IMPORTS).unlink(missing_ok=True)
            began = time.monotonic()
        imports = saved_at.with_suffix(_IMPORTS)
        setting = _setting(request, imports, temporary / "compiled")
        forks = None if request.fresh else _forks(setting, imports, temporary)
        if forks is not None:
            stack.enter_context(forks)
        trials = _trials(
            request,
            saved,
            lambda wanted: process.observe(
                setting, wanted, folder=temporary, cwd=place(), forks=forks
            ),
        )
        trials.elapsed_s += time.monotonic() - began
        tell(_opening(saved.diagnosis, trials.candidates, trials.elapsed_s))

        def on_observed(observed: TrialResult) -> None:
            progress.save(saved_at, saved.diagnosis, trials.ledger.observed, trials.elapsed_s)
            if observed.not_forked is None:
                tell(trials.told(observed))

        interrupted = False
        try:
            if trials.candidates:
                trials.run(report, on_observed)
        except KeyboardInterrupt:
            interrupted = True
    return _proven(request, cwd, trials, saved.diagnosis, interrupted)


def _trials(
    request: Request, saved: progress.Saved, observe: Callable[[process.Wanted], TrialResult]
) -> Trials:
    """What is to be tried, from where it was left."""
    candidates = candidates_of(saved.diagnosis, request.choice)
    return Trials(
        observe=observe,
        candidates=candidates,
        ledger=ledger_of(candidates, saved.observed, may_fork=not request.fresh),
        budget_s=request.budget_s,
        foresee=foresee(saved.diagnosis),
        limit_s=request.limit_s,
        elapsed_s=saved.elapsed_s,
    )


def _proven(
    request: Request, cwd: Path, trials: Trials, diagnosis: Diagnosis, interrupted: bool
) -> Proven:
    notes = _notes(request, cwd, trials, interrupted, diagnosis)
    proven = msgspec.structs.replace(
        diagnosis,
        proofs=trials.proofs(),
        trials=trials.rows(),
        notes=[*diagnosis.notes, *notes],
    )
    patch = _patch(request, trials, diagnosis)
    return Proven(diagnosis=proven, patch=patch, interrupted=interrupted)


def _forks(setting: process.Setting, imports: Path, folder: Path) -> Forks:
    return Forks(
        target=setting.target,
        imports=imports,
        folder=folder,
        environment=process.environment({}, setting.search_path, setting.compiled),
    )


def _opening(diagnosis: Diagnosis, candidates: Sequence[Candidate], seconds: float) -> str:
    names = ", ".join(words((one.key,)) for one in candidates) or "nothing"
    return (
        f"diagnosed: {diagnosis.step.kind}, {units.time(diagnosis.step.wall_ns)} a step, bound by "
        f"{diagnosis.verdict.bound_by} ({seconds:.0f} s); to be tried: {names}"
    )


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


def _setting(request: Request, notes_of_imports: Path, compiled: Path) -> process.Setting:
    if request.logs is not None:
        request.logs.mkdir(parents=True, exist_ok=True)
    return process.Setting(
        target=request.target,
        step_by=request.step_by,
        steps=request.steps,
        plugins=request.plugins,
        logs=request.logs.absolute() if request.logs is not None else _logs_folder(),
        search_path=request.search_path,
        imports=None if request.fresh else notes_of_imports,
        compiled=compiled,
    )


def foresee(diagnosis: Diagnosis) -> Foresee:
    """What the diagnosis promises for several fixes together."""

    def together(chosen: Sequence[Candidate]) -> Estimate | None:
        return promised(diagnosis, {fault for one in chosen for fault in one.covers})

    return together


def ledger_of(
    candidates: Sequence[Candidate], observed: Sequence[TrialResult], *, may_fork: bool = False
) -> TrialStore:
    return TrialStore(
        observed,
        precisions={one.key: one.precision for one in candidates},
        environments={one.key for one in candidates if one.environment},
        silent={one.key for one in candidates if one.silent},
        preparations={one.key: one.preparation_s for one in candidates},
        again={one.key: one.again_s for one in candidates},
        may_fork=may_fork,
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
            raise BoundbyError(
                _last_words(done.stderr), exit_code=done.returncode or CANNOT_MEASURE
            )
        return store.read(path, Diagnosis, "diagnosis")


def _last_words(errors: str) -> str:
    """Why there is no diagnosis: what boundby says of it, and what a script died of said."""
    lines = errors.strip().splitlines()
    ours = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    its_own = [line.strip() for line in lines if not line.startswith(_OURS) and line.strip()]
    if ours and not ours[-1].endswith(BEFORE_A_STEP):
        return ours[-1]
    words = [*ours[-1:], *(f"its last line: {line}" for line in its_own[-1:])]
    return "; ".join(words) or "no diagnosis came of it"


def _notes(
    request: Request, cwd: Path, trials: Trials, interrupted: bool, diagnosis: Diagnosis
) -> list[Note]:
    notes = []
    if interrupted:
        text = "interrupted: the same command with --resume continues from here"
        notes.append(Note(code="interrupted", text=text))
    if trials.elapsed_s > _LONGER * request.budget_s and not interrupted:
        notes.append(
            Note(
                code="over-budget",
                text=f"took {trials.elapsed_s:.0f} s instead of {request.budget_s:.0f}: the "
                "diagnosis and one run of the script take longer than the budget",
            )
        )
    kind = diagnosis.machine.kind
    notes += [
        Note(
            code="fix-not-applicable",
            text=f"{name} was not tried: it has no effect on a {kind} device",
        )
        for name in pointless(diagnosis, request.choice)
    ]
    written = _written(request, cwd, trials)
    if written:
        named = ", ".join(written[:_MOST_FILES_NAMED])
        more = f" and {len(written) - _MOST_FILES_NAMED} more" * (len(written) > _MOST_FILES_NAMED)
        text = f"the script wrote files while it was measured: {named}{more}"
        notes.append(Note(code="files-written", text=text))
    return notes


def _written(request: Request, cwd: Path, trials: Trials) -> list[str]:
    names = [name for one in trials.ledger.observed for name in one.wrote]
    caches = [os.environ.get(name) for name in _CACHE_FOLDERS]
    ours = [Path(folder).absolute() for folder in (*caches, request.logs) if folder]
    return files.left_behind(names, cwd, ours)


def _patch(request: Request, trials: Trials, diagnosis: Diagnosis) -> Patch | None:
    """What was kept, as a change to the script."""
    kept = trials.kept
    path = _script_path(request.target)
    timed = trials.ledger.timed(BASELINE)
    if path is None or not timed or kept is None:
        return None
    chosen = {one.key: trials.change(one, kept) for one in trials.candidates}
    return make_patch(
        path,
        [(key.partition("/")[2], chosen[key]) for key in kept],
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
