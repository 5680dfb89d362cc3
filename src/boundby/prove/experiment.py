"""A whole proof: diagnose, measure what was found live, write the patch, check it afresh."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boundby.capture.process.execution import Target
from boundby.model import Note, units
from boundby.model.diagnosis import Diagnosis, Outcome
from boundby.model.errors import CANNOT_MEASURE, BoundbyError
from boundby.prove import files, scratch
from boundby.prove.candidate import Candidate
from boundby.prove.candidates import Choice, candidates_of, likeliest, pointless
from boundby.prove.diagnosing import diagnose_script, undiagnosed
from boundby.prove.evidence import Arm, Evidence, Ruled
from boundby.prove.fresh import FreshProcesses, Turns, Variant
from boundby.prove.launch import COMPILED, Setting
from boundby.prove.live_run import LiveRun
from boundby.prove.proofs import Checked, chosen_fixes, last_words, proofs_of, untried_names
from boundby.prove.sites import ProgramSites

if TYPE_CHECKING:
    from boundby.prove.patching.patch import SourcePatch

Report = Callable[[str, float], None]

_MOST_FILES_NAMED = 8
_CACHE_FOLDERS = (COMPILED, "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME")
# The diagnosis is given this share of the budget at most; then fixes are tried without it.
_MOST_DIAGNOSIS = 1 / 3
# Of the budget, for processes after the live one: the final check and fixes of the start.
_MOST_RESERVED = 0.4
_FINAL_PROCESSES = 2
_LATE = "the diagnosis did not end in {:.0f} s, a third of the budget: fixes are tried without it"
_PROMISING = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks for."""

    target: Target
    budget_s: float = 300.0
    choice: Choice = field(default_factory=Choice)
    step_by: str = "auto"
    diagnosis: Diagnosis | None = None
    machine_file: Path | None = None
    plugins: Sequence[str] = ()
    logs: Path | None = None
    scratch: bool = False
    accept_unverified: bool = False
    search_path: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The diagnosis with its proofs, what was kept as a patch, and whether it was cut short."""

    diagnosis: Diagnosis
    patch: SourcePatch | None
    interrupted: bool


def prove_target(
    request: Request,
    report: Report = lambda *_: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Proven:
    """Prove what can be proven of a script; Ctrl-C keeps what was done by then.

    `report` hears what is being run, `tell` what came of it. The budget is for all of it, the
    diagnosis included.
    """
    began = time.monotonic()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BoundbyError("prove measures one process: start it without torchrun, on one rank")
    _load_plugins(request.plugins)
    request.choice.check()
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boundby-")))
        proof = _Proof(request, Path.cwd(), temporary, began, report, tell)
        try:
            proof.run()
        except KeyboardInterrupt:
            if proof.diagnosis is None:
                raise
            proof.interrupted = True
        return proof.proven()


def _is_promising(one: Candidate) -> bool:
    """Whether time is kept for it while others are undecided."""
    return one.asked or (one.predicted is not None and one.predicted.expected > _PROMISING)


class _Proof:
    """One proof under way; `proven` tells what is known at any time."""

    def __init__(
        self,
        request: Request,
        cwd: Path,
        temporary: Path,
        began: float,
        report: Report,
        tell: Callable[[str], None],
    ) -> None:
        self.diagnosis: Diagnosis | None = None
        self.interrupted = False
        self._is_diagnosed = True
        self._request = request
        self._cwd = cwd
        self._temporary = temporary
        self._ends_at = began + request.budget_s
        self._began = began
        self._report = report
        self._tell = tell
        self._place = _place(request, cwd, temporary)
        self._setting = _setting(request, temporary)
        self._candidates: list[Candidate] = []
        self._evidence = Evidence()
        self._told: dict[str, str] = {}
        self._starts: dict[str, Turns] = {}
        self._chosen_starts: list[str] = []
        self._patch: SourcePatch | None = None
        self._final: Turns | None = None
        self._live_notes: list[str] = []
        self._wrote: list[str] = []

    def run(self) -> None:
        request = self._request
        self._report("diagnosing", 0.0)
        found = request.diagnosis or diagnose_script(
            self._setting,
            machine_file=request.machine_file,
            cwd=self._place(),
            limit_s=_MOST_DIAGNOSIS * request.budget_s,
        )
        seconds = time.monotonic() - self._began
        if found is None:
            self.diagnosis = undiagnosed()
            self._candidates = likeliest(self.diagnosis, request.choice)
            names = ", ".join(one.fix for one in self._candidates)
            self._tell(f"{_LATE.format(seconds)}; to be tried: {names}")
        else:
            self.diagnosis = found
            self._candidates = candidates_of(found, request.choice)
            self._tell(_opening(found, self._candidates, seconds))
        self._is_diagnosed = found is not None
        if not self._candidates:
            return
        self._measure_live()
        fresh = FreshProcesses(
            setting=self._setting,
            candidates=[one for one in self._candidates if one.scope == "step"],
            place=self._place,
            ends_at=self._ends_at,
            report=lambda name: self._report(f"fresh process: {name}", self._share()),
        )
        step_s = 20 * (self._evidence.step_ns or 0.0) / 1e9
        fresh.expect((self._evidence.start_s or 3.0) + step_s)
        try:
            self._try_starts(fresh)
            self._check_finally(fresh)
        finally:
            self._wrote += fresh.wrote

    def _measure_live(self) -> None:
        live = [one for one in self._candidates if one.scope == "step"]
        if not live:
            return
        starts = [one for one in self._candidates if one.scope == "start" and _is_promising(one)]
        run = LiveRun(
            setting=self._setting,
            candidates=live,
            evidence=self._evidence,
            deadline=self._ends_at,
            start_fixes=len(starts),
            most_reserved_s=_MOST_RESERVED * self._request.budget_s,
            place=self._place,
            accept_unverified=self._request.accept_unverified,
            follow=self._followed,
        )
        try:
            run.run()
        finally:
            self._wrote += run.wrote
            self._live_notes += run.notes
        if run.problem is not None and self._evidence.chosen:
            # What was proven until then counts all the same.
            self._live_notes.append(f"measuring ended early: {run.problem}")
        elif run.problem is not None:
            raise BoundbyError(
                f"the script cannot be measured as it is: {run.problem}", exit_code=CANNOT_MEASURE
            )

    def _followed(self, evidence: Evidence) -> None:
        self._evidence = evidence
        # Without a diagnosis, fixes of both frameworks were to be tried.
        own = evidence.framework
        self._candidates = [one for one in self._candidates if own in (None, one.framework)]
        left_s = max(0.0, self._ends_at - time.monotonic())
        self._report(f"{evidence.progress()}, {left_s:.0f} s left", self._share())
        for fix, words in last_words(evidence, self._candidates).items():
            if self._told.get(fix) != words:
                self._told[fix] = words
                self._tell(words)

    def _share(self) -> float:
        return min(1.0, (time.monotonic() - self._began) / self._request.budget_s)

    def _try_starts(self, fresh: FreshProcesses) -> None:
        """Fixes that need a process of their own, each beside what was chosen."""
        arm = self._evidence.chosen
        for one in self._candidates:
            # Time for the final check comes first.
            if one.scope != "start" or not fresh.has_time(2 + _FINAL_PROCESSES):
                continue
            free = self._evidence.free_cores
            if one.needs_cores and free is not None and free < 1:
                why = f"{free:.1f} cores were idle while the program ran: a worker needs one"
                self._evidence.ruled[one.key] = Ruled(outcome=Outcome.SKIPPED, why=why)
                continue
            known = {other.key: other for other in self._candidates}
            if not one.goes_with([known[key] for key in (*arm, *self._chosen_starts)]):
                continue
            before = self._variant("without", arm, self._chosen_starts)
            after = self._variant(one.fix, arm, [*self._chosen_starts, one.key])
            turns = self._starts[one.key] = fresh.in_turn(
                before, after, pairs=2, spared=_FINAL_PROCESSES
            )
            found = turns.speedup
            if found is not None and found.low > 1 and turns.problem is None:
                self._chosen_starts.append(one.key)

    def _variant(
        self,
        name: str,
        arm: Arm,
        starts: Sequence[str],
        sources: dict[str, str] | None = None,
    ) -> Variant:
        environment: dict[str, str] = {}
        for one in self._candidates:
            if one.key in starts:
                environment.update(one.environment)
        return Variant(
            name=name, arm=arm, applied=starts, environment=environment, sources=sources or {}
        )

    def _check_finally(self, fresh: FreshProcesses) -> None:
        """The script as it is, and its patched copy, in processes that run in turn."""
        chosen = (*self._evidence.chosen, *self._chosen_starts)
        if not chosen:
            return
        self._patch = self._write_patch()
        written = set(self._patch.written) if self._patch is not None else set()
        known = {one.key: one for one in self._candidates}
        arm = tuple(key for key in self._evidence.chosen if known[key].fix not in written)
        starts = [key for key in self._chosen_starts if known[key].fix not in written]
        sources = {}
        for at, (path, text) in enumerate((self._patch.sources if self._patch else {}).items()):
            copy = self._temporary / f"patched-{at}-{path.name}"
            copy.write_bytes(text)
            sources[str(path)] = str(copy)
        before = self._variant("the script as it is", (), ())
        after = self._variant("the patched script", arm, starts, sources)
        self._final = fresh.in_turn(before, replace(after, may_do_without=True))

    def _write_patch(self) -> SourcePatch | None:
        path = _script_path(self._request.target)
        chosen = chosen_fixes(self._evidence, self._candidates, self._chosen_starts)
        if path is None or not chosen:
            return None
        # With libcst, which takes a while to import.
        from boundby.prove.patching.patch import write_patch

        sites = self._evidence.sites or ProgramSites(device="cpu")
        return write_patch(sites, chosen, script=path)

    def proven(self) -> Proven:
        assert self.diagnosis is not None
        request = self._request
        if self._patch is None:
            self._patch = self._write_patch()
        checked = Checked(
            starts=self._starts,
            chosen_starts=self._chosen_starts,
            final=self._final,
            manual={one.fix: one.why for one in self._patch.manual} if self._patch else {},
        )
        proofs = proofs_of(self._evidence, self._candidates, checked)
        step = self.diagnosis.step
        if not self._is_diagnosed:
            wall_ns = self._evidence.step_ns or 0.0
            step = msgspec.structs.replace(
                step, wall_ns=wall_ns, wall_interval_ns=(wall_ns, wall_ns)
            )
        diagnosis = msgspec.structs.replace(
            self.diagnosis,
            step=step,
            proofs=proofs,
            notes=[*self.diagnosis.notes, *self._notes(self.diagnosis, request)],
        )
        return Proven(diagnosis=diagnosis, patch=self._patch, interrupted=self.interrupted)

    def _notes(self, diagnosis: Diagnosis, request: Request) -> list[Note]:
        notes = [Note(code="too-few-steps", text=text) for text in self._live_notes]
        if not self._is_diagnosed:
            late = _LATE.format(_MOST_DIAGNOSIS * request.budget_s)
            notes.append(Note(code="not-diagnosed", text=late))
        if self.interrupted:
            text = "interrupted: what was measured until then is shown"
            notes.append(Note(code="interrupted", text=text))
        elif self._candidates and not self._evidence.steps and not self._starts:
            text = (
                f"no fix was tried: the diagnosis took {time.monotonic() - self._began:.0f} of "
                f"{request.budget_s:.0f} s"
            )
            notes.append(Note(code="no-fix-tried", text=text))
        untried = untried_names(self._evidence, self._candidates)
        if untried and self._evidence.steps:
            text = f"without a finding, and not tried in the time: {', '.join(untried)}"
            notes.append(Note(code="fixes-not-tried", text=text))
        kind = diagnosis.machine.kind
        notes += [
            Note(
                code="fix-not-applicable",
                text=f"{name} was not tried: it has no effect on a {kind} device",
            )
            for name in pointless(diagnosis, request.choice)
        ]
        caches = [os.environ.get(name) for name in _CACHE_FOLDERS]
        ours = [Path(folder).absolute() for folder in (*caches, request.logs) if folder]
        written = files.left_behind(self._wrote, self._cwd, ours)
        if written:
            named = ", ".join(written[:_MOST_FILES_NAMED])
            more = len(written) - _MOST_FILES_NAMED
            named += f" and {more} more" * (more > 0)
            text = f"the script wrote files while it was measured: {named}"
            notes.append(Note(code="files-written", text=text))
        return notes


def _opening(diagnosis: Diagnosis, candidates: Sequence[Candidate], seconds: float) -> str:
    names = ", ".join(one.fix for one in candidates if not one.unfounded) or "nothing"
    unfounded = ", ".join(one.fix for one in candidates if one.unfounded)
    return (
        f"diagnosed: {diagnosis.step.kind}, {units.time(diagnosis.step.wall_ns)} a step, bound by "
        f"{diagnosis.verdict.bound_by} ({seconds:.0f} s); to be tried: {names}"
        + f"; without a finding: {unfounded}"
        * bool(unfounded)
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


def _setting(request: Request, temporary: Path) -> Setting:
    if request.logs is not None:
        request.logs.mkdir(parents=True, exist_ok=True)
    return Setting(
        target=request.target,
        folder=temporary,
        # Logs outlive the proof: those of processes that failed are named in the report.
        logs=(
            request.logs.absolute()
            if request.logs is not None
            else Path(tempfile.mkdtemp(prefix="boundby-logs-"))
        ),
        step_by=request.step_by,
        plugins=request.plugins,
        search_path=request.search_path,
        compiled=temporary / "compiled",
    )


def _script_path(target: Target) -> Path | None:
    if not target.is_module:
        return Path(target.name)
    try:
        spec = importlib.util.find_spec(target.name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
