"""Runs the live measurement: one process of the script, or several if it ends early."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from boundby.model.proof import Outcome
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence, Ruling, Variant
from boundby.prove.launch import ProcessResult, Setting, launch

# A process may take this much longer to finish its current step.
_GRACE_S = 5.0
_MAX_PROCESSES = 12  # so that a script that ends at once is not started forever
# A script of fewer steps is not run again; nor if starting it would leave no time for as many.
_MIN_STEPS, _START_MARGIN = 8, 1.3


@dataclass(slots=True, kw_only=True)
class LiveRun:
    """Runs processes of the script until all fixes are decided or the time is over."""

    setting: Setting
    candidates: Sequence[Candidate]
    evidence: Evidence
    deadline: float
    place: Callable[[], Path]
    applied: Sequence[str] = ()  # fixes of the start that were chosen before
    environment: Mapping[str, str] = field(default_factory=dict)
    start_fixes: int = 0
    start_gain: float = 1.0
    max_reserved_s: float = 0.0
    accept_unverified: bool = False
    follow: Callable[[Evidence], None] = lambda _: None
    written_files: list[str] = field(default_factory=list)
    problem: str | None = None  # why the script itself cannot be measured
    log: Path | None = None  # of the process in which that was seen
    # What was on in processes that failed: why, and after how many steps.
    _suspects: dict[Variant, tuple[str, int]] = field(default_factory=dict)
    _failures: set[tuple[str, int]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def run(self) -> None:
        max_steps: int | None = None
        for attempt in range(_MAX_PROCESSES):
            before = self.evidence.steps
            launched = launch(
                self.setting,
                {
                    "deadline": self.deadline,
                    "candidates": self.candidates,
                    "evidence": self.evidence,
                    "accept_unverified": self.accept_unverified,
                    "max_steps": max_steps,
                    "seed": attempt,
                    "start_fixes": self.start_fixes,
                    "start_gain": self.start_gain,
                    "max_reserved_s": self.max_reserved_s,
                    "applied": list(self.applied),
                },
                name="live",
                cwd=self.place(),
                kill_at=self.kill_at,
                environment=self.environment,
                follow=self._receive,
            )
            self.written_files += launched.written_files
            steps = self.evidence.steps - before
            self._confirm_failures(steps)
            is_over = self.evidence.done or self.evidence.out_of_time
            if is_over or launched.late or time.monotonic() > self.deadline:
                self._settle_unfinished(launched)
                return
            if not self._may_continue(launched, steps):
                return
            if self.evidence.script_ended:
                max_steps = steps

    def _receive(self, content: bytes) -> None:
        self.evidence = msgspec.msgpack.decode(content, type=Evidence)
        self.follow(self.evidence)

    def kill_at(self) -> float:
        """The deadline; for a first use, such as compiling, the end of the time left to measure."""
        evidence, until = self.evidence, self.evidence.measure_until
        if evidence.preparing and until is not None:
            return min(until, self.deadline)
        # To finish a step; before the first was timed, there is nothing to wait for.
        step_s = (evidence.step_ns or 0.0) / 1e9
        return self.deadline + min(_GRACE_S, step_s)

    def _confirm_failures(self, steps: int) -> None:
        """A fix has failed if a later process, without it, gets past the same step."""
        for variant, (why, failed_at) in list(self._suspects.items()):
            ruling = self.evidence.rulings.get(variant)
            if ruling is not None and steps > failed_at:
                del self._suspects[variant]
                self.evidence.rulings[variant] = msgspec.structs.replace(
                    ruling, outcome=Outcome.FAILED, why=why
                )

    def _settle_unfinished(self, launched: ProcessResult) -> None:
        """Record a variant that was still being prepared when the time was over."""
        running = self.evidence.running
        is_measured = any(
            comparison.variant == running and comparison.log_ratios
            for comparison in self.evidence.comparisons
        )
        if launched.late and self.evidence.preparing and running and not is_measured:
            why = "its first use did not end in the time that was left"
            self.evidence.rulings.setdefault(
                running,
                Ruling(outcome=Outcome.SKIPPED, why=why, log=str(launched.log), wants_time=True),
            )

    def _may_continue(self, launched: ProcessResult, steps: int) -> bool:
        """Whether to start another process: no, if the unmodified script failed or is too short."""
        evidence = self.evidence
        why = evidence.ended or launched.problem or "the process ended without a message"
        running = evidence.running
        if not evidence.script_ended:
            if not running or (why, steps) in self._failures:
                # Another fix, the same failure at the same step: no fix causes it.
                self.problem, self.log = why, launched.log
                for variant, (reason, _) in self._suspects.items():
                    if reason == why:
                        evidence.rulings.pop(variant, None)
                return False
            self._failures.add((why, steps))
            self._suspects[running] = why, steps
            evidence.rulings[running] = Ruling(
                outcome=Outcome.INCONCLUSIVE,
                why=f"the script failed while it was on: {why}; it may also fail without it",
                log=str(launched.log),
            )
            evidence.running = ()
            return True
        if steps < _MIN_STEPS:
            self.notes.append(f"{why}: too few to measure blocks of steps in turn")
            return False
        left_s, start_s = self.deadline - time.monotonic(), evidence.start_s or 1.0
        if left_s > _START_MARGIN * start_s + _MIN_STEPS * (evidence.step_ns or 0.0) / 1e9:
            return True
        evidence.ended = f"{why}; {left_s:.0f} s are too few to start it again ({start_s:.0f} s)"
        return False
