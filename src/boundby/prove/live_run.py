"""The live measurement from outside: one process of the script, and another where it must be."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from boundby.model.diagnosis import Outcome
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence, Ruled, arm_name
from boundby.prove.launch import Launched, Setting, launch

# Beyond its time, a process is given so long for the step that it is in.
_GRACE_S = 5.0
_MOST_PROCESSES = 12
# A script of fewer steps is run again, if starting it takes less than this share of its time.
_FEWEST_STEPS = 8
_FEWEST_TO_GO_ON = 4


@dataclass(slots=True, kw_only=True)
class LiveRun:
    """Runs processes of the script until all is decided or the time is over."""

    setting: Setting
    candidates: Sequence[Candidate]
    evidence: Evidence
    deadline: float
    place: Callable[[], Path]
    start_fixes: int = 0
    most_reserved_s: float = 0.0
    accept_unverified: bool = False
    follow: Callable[[Evidence], None] = lambda _: None
    wrote: list[str] = field(default_factory=list)
    problem: str | None = None  # why the script itself cannot be measured
    notes: list[str] = field(default_factory=list)

    def run(self) -> None:
        most_steps: int | None = None
        for attempt in range(_MOST_PROCESSES):
            before = self.evidence.steps
            launched = launch(
                self.setting,
                {
                    "deadline": self.deadline,
                    "candidates": self.candidates,
                    "evidence": self.evidence,
                    "accept_unverified": self.accept_unverified,
                    "most_steps": most_steps,
                    "seed": attempt,
                    "start_fixes": self.start_fixes,
                    "most_reserved_s": self.most_reserved_s,
                },
                name="live",
                cwd=self.place(),
                kill_at=self.deadline + self._grace_s(),
                follow=self._followed,
            )
            self.wrote += launched.wrote
            steps = self.evidence.steps - before
            is_over = self.evidence.done or self.evidence.out_of_time
            if is_over or launched.late or time.monotonic() > self.deadline:
                self._rule_what_ran(launched)
                return
            if not self._may_go_on(launched, steps):
                return
            if self.evidence.script_ended:
                most_steps = steps

    def _followed(self, content: bytes) -> None:
        self.evidence = msgspec.json.decode(content, type=Evidence)
        self.follow(self.evidence)

    def _grace_s(self) -> float:
        return min(_GRACE_S, 2 * (self.evidence.step_ns or 2.5e9) / 1e9 + 1)

    def _rule_what_ran(self, launched: Launched) -> None:
        """One that was still preparing when the time was over."""
        running = arm_name(self.evidence.running)
        if launched.late and self.evidence.preparing and running:
            why = "its first use did not end in the time that was left"
            self.evidence.ruled.setdefault(
                running, Ruled(outcome=Outcome.SKIPPED, why=why, log=str(launched.log))
            )

    def _may_go_on(self, launched: Launched, steps: int) -> bool:
        """The process ended before all was decided: blame what ran, or run the script again."""
        evidence = self.evidence
        why = evidence.ended or launched.problem or "the process ended without a message"
        running = arm_name(evidence.running)
        if not evidence.script_ended:
            if not running:
                self.problem = why
                return False
            evidence.ruled[running] = Ruled(outcome=Outcome.FAILED, why=why, log=str(launched.log))
            evidence.running = ()
            return True
        if steps < _FEWEST_STEPS:
            self.notes.append(f"{why}: too few to measure blocks of steps in turn")
            return False
        left = self.deadline - time.monotonic()
        return left > _FEWEST_TO_GO_ON * (evidence.start_s or 1.0) / 2
