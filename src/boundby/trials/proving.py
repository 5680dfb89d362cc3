"""The conductor of the trials: a diagnosis in, the same with its proofs out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from boundby.errors import CANNOT_MEASURE, BoundbyError
from boundby.model.diagnosis import Diagnosis, Proof, Range
from boundby.trials.candidates import promised
from boundby.trials.combination import Candidate
from boundby.trials.interleave import Schedule, Step
from boundby.trials.ledger import BASELINE, Arm, Ledger
from boundby.trials.observation import Observed
from boundby.trials.process import Wanted

# A process that takes this many times as long as a baseline, and a while for compiling, hangs.
_TIMES_BASELINE = 6.0
_COMPILING_S = 150.0
_SHORTEST_LIMIT_S = 60.0
_FIRST_LIMIT_S = 900.0

# What is being run, and how much of the budget is gone.
Progress = Callable[[str, float], None]


@dataclass(slots=True, kw_only=True)
class Trials:
    """An experiment under way. `elapsed_s` goes on counting where a resumed one stopped."""

    observe: Callable[[Wanted], Observed]
    candidates: Sequence[Candidate]
    ledger: Ledger
    budget_s: float
    limit_s: float | None = None
    elapsed_s: float = 0.0

    def run(
        self,
        progress: Progress = lambda *_: None,
        on_observed: Callable[[Observed], None] = lambda _: None,
    ) -> None:
        """Run trials until all is settled or the budget is spent."""
        schedule = Schedule(self.candidates, self.ledger, self.budget_s)
        began = time.monotonic() - self.elapsed_s
        while (step := schedule.next(self.elapsed_s)) is not None:
            progress(self._words(step), min(1.0, self.elapsed_s / self.budget_s))
            observed = self.observe(self._wanted(step))
            self.elapsed_s = time.monotonic() - began
            self.ledger.add(observed)
            on_observed(observed)
            if not self.ledger.timed(BASELINE):
                raise BoundbyError(_no_baseline(observed), exit_code=CANNOT_MEASURE)

    def _wanted(self, step: Step) -> Wanted:
        chosen = [one for one in self.candidates if one.key in step.arm]
        return Wanted(
            arm=step.arm,
            seed=len(self.ledger.tried(step.arm)) + 1,
            reference=step.reference,
            has_dropout=self.ledger.has_dropout,
            environment={name: value for one in chosen for name, value in one.environment},
            limit_s=self._limit(step.arm),
        )

    def _limit(self, arm: Arm) -> float:
        if self.limit_s is not None:
            return self.limit_s
        baselines = [one.seconds for one in self.ledger.tried(BASELINE)]
        if not baselines:
            return _FIRST_LIMIT_S
        patience = _TIMES_BASELINE * max(baselines) + _COMPILING_S
        # Past the budget nothing is waited for longer than it was known to take.
        left = max(self.budget_s - self.elapsed_s, 3 * self.ledger.seconds(arm))
        return max(_SHORTEST_LIMIT_S, min(patience, left))

    def _words(self, step: Step) -> str:
        left = max(0.0, self.budget_s - self.elapsed_s)
        return f"{step.why}, {len(self.ledger.observed)} runs done, at most {left:.0f} s left"

    @property
    def final(self) -> Arm:
        """The best combination of what held."""
        return Schedule(self.candidates, self.ledger, self.budget_s).final

    def proofs(self, diagnosis: Diagnosis) -> list[Proof]:
        """One for each fix, and one for the best of them together where that is several."""
        proofs = [self._proof([one], one.predicted) for one in self.candidates]
        final = self.final
        if len(final) > 1:
            chosen = [one for key in final for one in self.candidates if one.key == key]
            covers = {fault for one in chosen for fault in one.covers}
            proofs.append(self._proof(chosen, promised(diagnosis, covers)))
        return proofs

    def _proof(self, chosen: Sequence[Candidate], predicted: Range | None) -> Proof:
        arm = tuple(one.key for one in chosen)
        result = self.ledger.result(arm)
        keep_log = result.outcome in ("failed", "wrong numbers")
        return Proof(
            faults=list(dict.fromkeys(fault for one in chosen for fault in one.faults)),
            treatment=" + ".join(one.key.partition("/")[2] for one in chosen),
            before_ns=[one.median_ns for one in self.ledger.timed(BASELINE)],
            after_ns=[one.median_ns for one in self.ledger.timed(arm)],
            speedup=result.speedup,
            predicted=predicted,
            peak_bytes=result.peak,
            numerics=result.numerics,
            outcome=result.outcome,
            why=result.why,
            change="\n".join(one.change for one in chosen),
            log=result.log if keep_log else None,
        )


def _no_baseline(observed: Observed) -> str:
    why = observed.problem or (
        "no step was found" if observed.kind is None else "it ended before its steps were timed"
    )
    return f"the script cannot be measured as it is: {why} (its output: {observed.log})"
