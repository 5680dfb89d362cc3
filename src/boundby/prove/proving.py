"""The conductor of the trials: a diagnosis in, the same with its proofs out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from boundby.model import units
from boundby.model.diagnosis import Estimate, Proof, TrialRow
from boundby.model.errors import CANNOT_MEASURE, BoundbyError
from boundby.prove.combination import Candidate, Foresee
from boundby.prove.process import Wanted
from boundby.prove.results import BASELINE, Arm, TrialStore
from boundby.prove.scheduler import Schedule, Step, words
from boundby.prove.trial_result import TrialResult

# A process that takes this many times as long as a baseline, and a while for compiling, hangs.
_TIMES_BASELINE = 6.0
_COMPILING_S = 150.0
_ODDS_S = 30.0  # of one that has nothing to prepare
_FIRST_LIMIT_S = 900.0
# What was planned to fit may take a little longer; then it is ended.
_OVERRUN, _OVERRUN_S = 0.02, 2.0

_WORTH_A_WORD_S = 0.5

# What is being run, and how much of the budget is gone.
Progress = Callable[[str, float], None]


@dataclass(slots=True, kw_only=True)
class Trials:
    """An experiment under way. `elapsed_s` goes on counting where a resumed one stopped."""

    observe: Callable[[Wanted], TrialResult]
    candidates: Sequence[Candidate]
    ledger: TrialStore
    budget_s: float
    foresee: Foresee = lambda _: None
    limit_s: float | None = None
    elapsed_s: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def run(
        self,
        progress: Progress = lambda *_: None,
        on_observed: Callable[[TrialResult], None] = lambda _: None,
    ) -> None:
        """Run trials until all is settled or the budget is spent."""
        schedule = self._schedule
        began = self.clock() - self.elapsed_s
        while (step := schedule.next(self.elapsed_s)) is not None:
            progress(self._words(step), min(1.0, self.elapsed_s / self.budget_s))
            observed = self.observe(self._wanted(step))
            self.elapsed_s = self.clock() - began
            self.ledger.add(observed)
            on_observed(observed)
            if not self.ledger.timed(BASELINE):
                raise BoundbyError(_no_baseline(observed), exit_code=CANNOT_MEASURE)

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self.candidates, self.ledger, self.budget_s, self.foresee)

    def _wanted(self, step: Step) -> Wanted:
        chosen = [one for one in self.candidates if one.key in step.arm]
        preparation = max((one.preparation_s for one in chosen), default=0.0)
        limit, left = self._limit(preparation), self._left(step)
        return Wanted(
            arm=step.arm,
            seed=self._seed(step),
            reference=step.reference,
            forked=step.start == "forked",
            has_dropout=self.ledger.has_dropout,
            environment={name: value for one in chosen for name, value in one.environment},
            limit_s=min(limit, left),
            ends_with_budget=left < limit,
        )

    def _seed(self, step: Step) -> int:
        """By how many there were of a kind: the first fork does what the first fresh one did."""
        alike = [
            one
            for one in self.ledger.observed
            if set(one.arm) == set(step.arm) and one.start == step.start
        ]
        return sum(not one.reference and not one.cut for one in alike) + 1

    def _limit(self, preparation_s: float) -> float:
        """How long a process may take before it is taken to hang."""
        if self.limit_s is not None:
            return self.limit_s
        baselines = [one.seconds for one in self.ledger.observed if not one.arm and not one.cut]
        if not baselines:
            return _FIRST_LIMIT_S
        more = max(_COMPILING_S, 2 * preparation_s) if preparation_s else _ODDS_S
        return _TIMES_BASELINE * max(baselines) + more

    def _left(self, step: Step) -> float:
        """Without one baseline there is nothing to say: that one may take its time."""
        if not self.ledger.tried(BASELINE):
            return _FIRST_LIMIT_S
        left = self.budget_s - self.elapsed_s - step.kept_s
        return left if step.kept_s else left + _OVERRUN * self.budget_s + _OVERRUN_S

    def _words(self, step: Step) -> str:
        left = max(0.0, self.budget_s - self.elapsed_s)
        return f"{step.why} (run {len(self.ledger.observed) + 1}, at most {left:.0f} s left)"

    def told(self, observed: TrialResult) -> str:
        """What a run showed, in one line."""
        name = words(tuple(observed.arm))
        took = _took(observed)
        if observed.problem is not None:
            return f"{name}: {observed.problem} ({took})"
        if observed.reference:
            return f"{name}, in float32 to compare with ({took})"
        if not observed.samples_ns:
            return f"{name}: it ended before its steps could be timed ({took})"
        text = f"{name}: {units.time(observed.median_ns)} a step"
        result = self.ledger.result(tuple(observed.arm))
        if observed.arm and result.speedup is not None:
            text += f", {result.speedup.median:.2f}x so far"
            text += "" if result.computes_right else f", {self._doubt(tuple(observed.arm))}"
        elif observed.arm:
            text += f", {result.why}"
        return f"{text} ({took})"

    def _doubt(self, arm: Arm) -> str:
        """Beside one baseline alone, nobody knows how far rounding errors go in this program."""
        if len(self.ledger.timed(BASELINE, beside=arm)) == 1:
            return "its numbers differ: another run as it is would tell by how much they may"
        return "but it computes something else"

    @property
    def final(self) -> Arm:
        """The best combination of what held."""
        return self._schedule.final

    @property
    def kept(self) -> Arm | None:
        """What is told to be kept: of those that held together the last, which is the best, else
        the best that held alone. The final one may still be open."""
        together = [arm for arm in self._together() if self.ledger.concluded(arm).held]
        if together:
            return together[-1]
        alone = {(one.key,): self.ledger.concluded((one.key,)) for one in self.candidates}
        held = {
            arm: result.speedup.median
            for arm, result in alone.items()
            if result.held and result.speedup is not None
        }
        return max(held, key=lambda arm: held[arm], default=None)

    def proofs(self) -> list[Proof]:
        """One for each fix, then those tried together, the best of them last."""
        proofs = [self._proof([one], one.predicted) for one in self.candidates]
        for arm in self._together():
            chosen = [one for key in arm for one in self.candidates if one.key == key]
            proofs.append(self._proof(chosen, self.foresee(chosen)))
        return proofs

    def _together(self) -> list[Arm]:
        """Fixes that were run in one process, in the order of their first; the best one last."""
        arms: dict[frozenset[str], Arm] = {}
        for one in self.ledger.observed:
            arms.setdefault(frozenset(one.arm), tuple(one.arm))
        final = self.final
        arms.pop(frozenset(final), None)
        return [arm for arm in (*arms.values(), final) if len(arm) > 1]

    def rows(self) -> list[TrialRow]:
        """All processes, with where their seconds went."""
        return [
            TrialRow(
                treatment=words(tuple(one.arm)),
                reference=one.reference,
                start=one.start,
                seconds=one.seconds,
                prepared_s=one.prepared_s,
                not_prepared=one.not_prepared,
                spent_s=one.spent.stages(),
                step_ns=one.median_ns if one.samples_ns and not one.reference else None,
                problem=one.problem,
            )
            for one in self.ledger.observed
        ]

    def _proof(self, chosen: Sequence[Candidate], predicted: Estimate | None) -> Proof:
        arm = tuple(one.key for one in chosen)
        result = self.ledger.concluded(arm)
        keep_log = result.outcome in ("failed", "wrong numbers")
        return Proof(
            faults=list(dict.fromkeys(fault for one in chosen for fault in one.faults)),
            treatment=words(arm),
            start=self.ledger.start(arm),
            before_ns=[one.median_ns for one in self.ledger.timed(BASELINE, beside=arm)],
            after_ns=[one.median_ns for one in self.ledger.timed(arm)],
            speedup=result.speedup,
            predicted=predicted,
            peak_bytes=result.peak,
            numerics=result.numerics,
            outcome=result.outcome,
            why=result.why,
            change=together(self.change(one, arm) for one in chosen),
            log=result.log if keep_log else None,
            open=result.open,
        )

    def change(self, candidate: Candidate, arm: Arm) -> str:
        """What to write, in the script's own terms where it was seen what they are."""
        touched = {
            word for one in self.ledger.timed(arm) for word, count in one.touched.items() if count
        }
        if candidate.written is None or not touched:
            return candidate.change
        return candidate.written(touched)


def together(changes: Iterable[str]) -> str:
    """What to write for all of them; a line that several ask for, once, but blocks whole."""
    lines: dict[str, str] = {}
    for number, line in enumerate(line for change in changes for line in change.splitlines()):
        code = line.partition("  #")[0]
        is_of_block = code.startswith(" ") or code.endswith(":")
        lines.setdefault(f"{number} {code}" if is_of_block else code, line)
    return "\n".join(lines.values())


def _took(observed: TrialResult) -> str:
    before = observed.spent.before_steps_s
    took = f"{observed.seconds:.0f} s"
    if before is not None and before >= _WORTH_A_WORD_S:
        took += f", {before:.0f} of them before its first step"
    if observed.prepared_s:
        took += f", after {observed.prepared_s:.0f} s for what it was forked from"
    return took


def _no_baseline(observed: TrialResult) -> str:
    why = observed.problem or (
        "no step was found" if observed.kind is None else "it ended before its steps were timed"
    )
    return f"the script cannot be measured as it is: {why} (its output: {observed.log})"
