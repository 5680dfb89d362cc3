"""Runs a whole proof: diagnose, measure fixes live, write the patch, check it in new processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boundby.model import Note
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import CANNOT_MEASURE, OWN_FAILURE, BoundbyError
from boundby.model.proof import Outcome
from boundby.prove import notes
from boundby.prove.candidate import Candidate
from boundby.prove.candidates import (
    candidates_of,
    candidates_without_diagnosis,
    dominant_start_fixes,
    is_reserved_for,
)
from boundby.prove.changes import chosen_fixes
from boundby.prove.core_use import core_use
from boundby.prove.diagnosing import diagnose_script, first_line, start_s_of, undiagnosed
from boundby.prove.evidence import Evidence, Ruling, Variant
from boundby.prove.fresh import AlternatingRuns, FreshProcesses, ProcessSetup
from boundby.prove.live_run import LiveRun
from boundby.prove.process_proofs import BUDGET_ENDED, INTERRUPTED, ProcessResults
from boundby.prove.process_time import process_s
from boundby.prove.proofs import proofs_of
from boundby.prove.request import Request, load_plugins, place, script_path, setting
from boundby.prove.settled import settled_lines
from boundby.prove.sites import ProgramSites

if TYPE_CHECKING:
    from boundby.prove.patching.patch import SourcePatch

Report = Callable[[str, float], None]

# The diagnosis is given this share of the budget at most; then fixes are tried without it.
_MAX_DIAGNOSIS_SHARE = 1 / 3
# The share of the budget reserved for processes after the live one: the final check and fixes that
# need a new process.
_MAX_RESERVED_SHARE = 0.35
_FINAL_PROCESSES = 2  # the script and its patched copy
# To end the last process and report.
_FINISHING_S, _FINISHING_SHARE = 2.5, 0.025
_LATE = "the diagnosis did not end in {:.0f} s, a third of the budget: fixes are tried without it"
_USUAL_START_S = 5.0  # assumed until a start was timed


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofResult:
    """The diagnosis with its proofs, what was kept as a patch, and whether it was cut short."""

    diagnosis: Diagnosis
    patch: SourcePatch | None
    interrupted: bool


def prove_target(
    request: Request,
    report: Report = lambda *_: None,
    on_result: Callable[[str], None] = lambda _: None,
    *,
    began: float | None = None,
) -> ProofResult:
    """Measure the fixes for a script; Ctrl-C keeps the results so far.

    `report` is called with what is being run, `on_result` with each result. The budget includes
    the diagnosis; it is counted from `began` on the monotonic clock, or from now.
    """
    began = time.monotonic() if began is None else began
    if int(os.environ.get("WORLD_SIZE", "1")) > request.ranks:
        raise BoundbyError(
            "prove measures the ranks of one machine, which torchrun starts with the command: "
            "torchrun --nproc-per-node 8 -m boundby prove train.py"
        )
    load_plugins(request.plugins)
    request.choice.check()
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="boundby-")))
        proof = _ProofRun(request, Path.cwd(), temporary, began, report, on_result)
        try:
            proof.run()
        except KeyboardInterrupt:
            if proof.diagnosis is None:
                raise
            proof.interrupted = True
        try:
            return proof.result()
        except KeyboardInterrupt:
            proof.interrupted = True
            return proof.result()


class _ProofRun:
    """One proof in progress; `result` returns what is known at any time."""

    def __init__(
        self,
        request: Request,
        cwd: Path,
        temporary: Path,
        began: float,
        report: Report,
        on_result: Callable[[str], None],
    ) -> None:
        self.diagnosis: Diagnosis | None = None
        self.interrupted = False
        self._is_diagnosed = True
        self._diagnosis_s = 0.0
        self._request = request
        self._cwd = cwd
        self._temporary = temporary
        self._ends_at = (
            began + request.budget_s - min(_FINISHING_S, _FINISHING_SHARE * request.budget_s)
        )
        self._began = began
        self._report = report
        self._on_result = on_result
        self._place = place(request, cwd, temporary)
        self._setting = setting(request, temporary)
        self._candidates: list[Candidate] = []
        self._evidence = Evidence()
        self._announced: dict[str, str] = {}
        self._starts: dict[str, AlternatingRuns] = {}
        self._chosen_starts: list[str] = []
        self._live_starts: list[str] = []  # chosen before the live process, and applied in it
        self._patch: SourcePatch | None = None
        self._final: AlternatingRuns | None = None
        self._live_notes: list[str] = []
        self._written_files: list[str] = []

    def run(self) -> None:
        request = self._request
        cores_before = core_use()
        self._report("diagnosing", 0.0)
        diagnosis = request.diagnosis or diagnose_script(
            self._setting,
            machine_file=request.machine_file,
            cwd=self._place(),
            limit_s=_MAX_DIAGNOSIS_SHARE * request.budget_s,
        )
        seconds = self._diagnosis_s = time.monotonic() - self._began
        if diagnosis is None:
            self.diagnosis = undiagnosed()
            self._candidates = candidates_without_diagnosis(self.diagnosis, request.choice)
            names = ", ".join(candidate.fix for candidate in self._candidates)
            self._on_result(f"{_LATE.format(seconds)}; to be tried: {names}")
        else:
            self.diagnosis = diagnosis
            self._candidates = candidates_of(diagnosis, request.choice)
            self._on_result(first_line(diagnosis, self._candidates, seconds))
        self._is_diagnosed = diagnosis is not None
        if not self._candidates:
            return
        free_cores = core_use().free_cores(since=cores_before)
        idle_cores = free_cores if request.diagnosis is None else None
        with self._fresh_processes() as fresh:
            self._try_start_fixes(fresh, dominant_start_fixes(self._candidates), idle_cores)
        self._measure_live()
        with self._fresh_processes() as fresh:
            untried = [
                candidate for candidate in self._candidates if candidate.key not in self._starts
            ]
            self._try_start_fixes(fresh, untried, self._evidence.free_cores)
            self._check_patch(fresh)

    @contextlib.contextmanager
    def _fresh_processes(self) -> Iterator[FreshProcesses]:
        """New processes of the script, with their expected duration."""
        fresh = FreshProcesses(
            setting=self._setting,
            candidates=[candidate for candidate in self._candidates if candidate.scope == "step"],
            place=self._place,
            ends_at=self._ends_at,
            report=lambda name: self._report(f"fresh process: {name}", self._share()),
        )
        start_s, step_ns = self._evidence.start_s, self._evidence.step_ns
        if start_s is None and self.diagnosis is not None:
            start_s, step_ns = start_s_of(self.diagnosis), self.diagnosis.step.wall_ns
        fresh.expect(process_s(start_s or _USUAL_START_S, (step_ns or 0.0) / 1e9))
        try:
            yield fresh
        finally:
            self._written_files += fresh.written_files

    def _measure_live(self) -> None:
        live = [candidate for candidate in self._candidates if candidate.scope == "step"]
        if not live:
            return
        starts = [
            candidate
            for candidate in self._candidates
            if candidate.scope == "start"
            and candidate.key not in self._starts
            and is_reserved_for(candidate)
        ]
        self._live_starts = list(self._chosen_starts)
        run = LiveRun(
            setting=self._setting,
            candidates=live,
            evidence=self._evidence,
            deadline=self._ends_at,
            applied=self._live_starts,
            environment=self._setup_of("", (), self._chosen_starts).environment,
            start_fixes=len(starts),
            start_gain=max(
                (candidate.predicted.expected for candidate in starts if candidate.predicted),
                default=1.0,
            ),
            max_reserved_s=_MAX_RESERVED_SHARE * self._request.budget_s,
            place=self._place,
            accept_unverified=self._request.accept_unverified,
            follow=self._receive,
        )
        try:
            run.run()
        finally:
            self._written_files += run.written_files
            self._live_notes += run.notes
        self._evidence = run.evidence
        is_measured = any(comparison.log_ratios for comparison in self._evidence.comparisons)
        if run.problem is not None and is_measured:
            # Results so far stay valid.
            steps = self._evidence.steps
            self._live_notes.append(
                f"the script itself failed, after {steps} steps in all: {run.problem} "
                f"(log: {run.log}); the results until then are shown"
            )
        elif run.problem is not None:
            why = f"{run.problem} (log: {run.log})"
            if self._evidence.failed_itself:
                raise BoundbyError(why, exit_code=OWN_FAILURE)
            raise BoundbyError(
                f"the script cannot be measured as it is: {why}", exit_code=CANNOT_MEASURE
            )

    def _receive(self, evidence: Evidence) -> None:
        self._evidence = evidence
        # Without a diagnosis, fixes of both frameworks were to be tried.
        framework = evidence.framework
        self._candidates = [
            candidate for candidate in self._candidates if framework in (None, candidate.framework)
        ]
        left_s = max(0.0, self._ends_at - time.monotonic())
        self._report(f"{evidence.progress()}, {left_s:.0f} s left", self._share())
        for fix, words in settled_lines(evidence, self._candidates, self._live_starts).items():
            if self._announced.get(fix) != words:
                self._announced[fix] = words
                self._on_result(words)

    def _share(self) -> float:
        return min(1.0, (time.monotonic() - self._began) / self._request.budget_s)

    def _try_start_fixes(
        self, fresh: FreshProcesses, fixes: Sequence[Candidate], idle_cores: float | None
    ) -> None:
        """Measure each fix that needs a new process, added to the fixes chosen so far."""
        variant = self._evidence.chosen
        for candidate in fixes:
            # Time for the final check comes first.
            if candidate.scope != "start" or not fresh.has_time_for(2 + _FINAL_PROCESSES):
                continue
            if candidate.needs_cores and idle_cores is not None and idle_cores < 1:
                why = f"{idle_cores:.1f} cores were idle while the program ran: a worker needs one"
                self._evidence.rulings[candidate.key,] = Ruling(outcome=Outcome.SKIPPED, why=why)
                continue
            by_key = {other.key: other for other in self._candidates}
            if not candidate.is_compatible_with(
                [by_key[key] for key in (*variant, *self._chosen_starts)]
            ):
                continue
            before = self._setup_of("without", variant, self._chosen_starts)
            after = self._setup_of(candidate.fix, variant, [*self._chosen_starts, candidate.key])
            runs = self._starts[candidate.key] = fresh.alternate(
                before, after, pairs=2, reserved_processes=_FINAL_PROCESSES
            )
            speedup = runs.speedup
            if speedup is not None and speedup.low > 1 and runs.problem is None:
                self._chosen_starts.append(candidate.key)

    def _setup_of(
        self,
        name: str,
        variant: Variant,
        starts: Sequence[str],
        sources: dict[str, str] | None = None,
    ) -> ProcessSetup:
        environment: dict[str, str] = {}
        for candidate in self._candidates:
            if candidate.key in starts:
                environment.update(candidate.environment)
        return ProcessSetup(
            name=name,
            variant=variant,
            applied=starts,
            environment=environment,
            sources=sources or {},
        )

    def _check_patch(self, fresh: FreshProcesses) -> None:
        """Alternate processes of the unmodified script and of its patched copy."""
        chosen = (*self._evidence.chosen, *self._chosen_starts)
        if not chosen:
            return
        self._patch = self._write_patch()
        written = set(self._patch.written) if self._patch is not None else set()
        by_key = {candidate.key: candidate for candidate in self._candidates}
        variant = tuple(key for key in self._evidence.chosen if by_key[key].fix not in written)
        starts = [key for key in self._chosen_starts if by_key[key].fix not in written]
        sources = {}
        for at, (path, text) in enumerate((self._patch.sources if self._patch else {}).items()):
            copy = self._temporary / f"patched-{at}-{path.name}"
            copy.write_bytes(text)
            sources[str(path)] = str(copy)
        before = self._setup_of("the script as it is", (), ())
        after = self._setup_of("the patched script", variant, starts, sources)
        self._final = fresh.alternate(before, replace(after, drop_failing_fixes=True))

    def _write_patch(self) -> SourcePatch | None:
        path = script_path(self._request.target)
        chosen = chosen_fixes(self._evidence, self._candidates, self._chosen_starts)
        if path is None or not chosen:
            return None
        # With libcst, which takes a while to import.
        from boundby.prove.patching.patch import write_patch

        sites = self._evidence.sites or ProgramSites(device="cpu")
        return write_patch(sites, chosen, script=path)

    def result(self) -> ProofResult:
        assert self.diagnosis is not None
        request = self._request
        if self._patch is None:
            self._patch = self._write_patch()
        if self.interrupted:
            self._evidence.ended = INTERRUPTED
        processes = ProcessResults(
            starts=self._starts,
            chosen_starts=self._chosen_starts,
            live_starts=self._live_starts,
            final=self._final,
            manual={manual.fix: manual.why for manual in self._patch.manual} if self._patch else {},
            not_tried=INTERRUPTED if self.interrupted else BUDGET_ENDED,
            words=self._patch.words if self._patch else {},
        )
        proofs = proofs_of(self._evidence, self._candidates, processes)
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
            notes=[*self.diagnosis.notes, *self._notes(self.diagnosis)],
        )
        is_log_named = self._live_notes or any(proof.log for proof in proofs)
        if request.logs is None and not is_log_named:
            shutil.rmtree(self._setting.logs, ignore_errors=True)
        return ProofResult(diagnosis=diagnosis, patch=self._patch, interrupted=self.interrupted)

    def _notes(self, diagnosis: Diagnosis) -> list[Note]:
        request = self._request
        is_started = bool(self._evidence.steps or self._starts or self._evidence.rulings)
        late = None
        if not self._is_diagnosed:
            late = _LATE.format(_MAX_DIAGNOSIS_SHARE * request.budget_s)
        no_time = None
        if self._candidates and not is_started:
            no_time = (
                f"no fix was tried: the diagnosis took {self._diagnosis_s:.0f} of "
                f"{request.budget_s:.0f} s, and the script reached no step in the rest"
            )
        return [
            *notes.of_the_run(
                self._live_notes,
                late=late if is_started else None,
                no_time=no_time,
                interrupted=self.interrupted,
            ),
            *notes.of_fixes(self._evidence, self._candidates, diagnosis, request.choice),
            *notes.of_files(self._written_files, self._cwd, request.logs),
        ]
