"""What to run next: baseline and fixes in turn, until it is clear enough or the time is up.

Rounds go A B C D A B C D: every fix has a baseline near it in time. A fix leaves the rounds when
its interval is narrow, or when it is plainly faster or slower. Then the combinations, then the best
of them in turn with the baseline. Everything follows from the ledger: a resumed experiment goes on
where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boundby.model.diagnosis import Speedup
from boundby.trials.combination import Candidate, combine
from boundby.trials.ledger import BASELINE, Arm, Ledger
from boundby.trials.numerics import FEWEST_SEEDS
from boundby.trials.speedup import half_width

# Half the interval, as a share of the speed-up.
_NARROW = 0.05
_NARROW_AT_THE_END = 0.035
_PLAINLY_FASTER = 1.05
_MOST_RUNS = 6
_FEWEST_BASELINES = 2
_MOST_RUNS_AT_THE_END = 8
# Of the budget: when the first round, all rounds and the combinations have to be over.
_FIRST_ROUND, _ROUNDS, _COMBINATIONS = 0.7, 0.6, 0.85
# Two ways to mend one fault: the one behind by more than this is not looked at again.
_BEHIND = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One process to run, and why, in words."""

    arm: Arm
    why: str
    reference: bool = False


class Schedule:
    def __init__(self, candidates: Sequence[Candidate], ledger: Ledger, budget_s: float) -> None:
        self._candidates = list(candidates)
        self._ledger = ledger
        self._budget_s = budget_s

    def next(self, elapsed_s: float) -> Step | None:
        """None when all is settled, or nothing more fits into the budget."""
        if not self._ledger.tried(BASELINE):
            return Step(arm=BASELINE, why="baseline")
        if not self._candidates:
            return None
        if not any(one.reference for one in self._ledger.observed):
            return Step(arm=BASELINE, why="float32 reference", reference=True)
        return self._round(elapsed_s) or self._combination(elapsed_s) or self._end(elapsed_s)

    @property
    def final(self) -> Arm:
        """The best combination as far as it is known."""
        return combine(self._candidates, self._ledger).arm

    def _round(self, elapsed_s: float) -> Step | None:
        open_ = [one for one in self._candidates if not self._is_settled(one)]
        # Those that take too long by now give way to those that fit.
        tries = {one.key: len(self._ledger.tried((one.key,))) for one in open_}
        for candidate in sorted(open_, key=lambda one: tries[one.key]):
            arm = (candidate.key,)
            first = not tries[candidate.key]
            share = _FIRST_ROUND if first else _ROUNDS
            seconds = self._ledger.seconds(arm)
            if not first and len(self._ledger.tried(BASELINE)) <= tries[candidate.key]:
                if self._fits(elapsed_s, seconds + self._ledger.seconds(BASELINE), share):
                    return Step(arm=BASELINE, why="baseline")
            elif self._fits(elapsed_s, seconds, share):
                return Step(arm=arm, why=candidate.key)
        return None

    def _is_settled(self, candidate: Candidate) -> bool:
        result = self._ledger.result((candidate.key,))
        if not self._ledger.tried((candidate.key,)):
            return False
        if result.speedup is None or not result.computes_right:
            return True
        # One baseline may be a lucky one.
        if len(self._ledger.timed(BASELINE)) < _FEWEST_BASELINES:
            return False
        if result.speedup.high < 1:
            return True
        if result.runs >= _MOST_RUNS or self._is_behind(candidate, result.speedup):
            return True
        if half_width(result.speedup) <= _NARROW and result.runs > 1:
            return True
        return result.held and result.speedup.low > _PLAINLY_FASTER

    def _is_behind(self, candidate: Candidate, speedup: Speedup) -> bool:
        others = [
            result.speedup.median
            for other in self._candidates
            if other.is_rival(candidate) and other.key != candidate.key
            for result in [self._ledger.result((other.key,))]
            if result.speedup is not None and result.computes_right
        ]
        return any(speedup.median < _BEHIND * other for other in others)

    def _combination(self, elapsed_s: float) -> Step | None:
        wanted = combine(self._candidates, self._ledger).wanted
        if wanted is None:
            return None
        if not self._fits(elapsed_s, self._ledger.seconds(wanted), _COMBINATIONS):
            return None
        return Step(arm=wanted, why=" + ".join(wanted))

    def _end(self, elapsed_s: float) -> Step | None:
        """The best combination and the baseline in turn, until the interval is narrow."""
        baselines = len(self._ledger.tried(BASELINE))
        seeds_lack = self._ledger.has_dropout and baselines < FEWEST_SEEDS
        final = self.final
        last = self._ledger.observed[-1]
        turn = BASELINE if last.arm or last.reference else final
        if final == BASELINE:
            turn = BASELINE
            is_enough = not seeds_lack
        else:
            result = self._ledger.result(final)
            assert result.speedup is not None
            narrow = half_width(result.speedup) <= _NARROW_AT_THE_END
            is_enough = result.runs >= _MOST_RUNS_AT_THE_END or (narrow and result.runs > 1)
            is_enough = is_enough and not seeds_lack
        if is_enough or not self._fits(elapsed_s, self._ledger.seconds(turn), 1.0):
            return None
        return Step(arm=turn, why=" + ".join(turn) or "baseline")

    def _fits(self, elapsed_s: float, seconds: float, share: float) -> bool:
        return elapsed_s + seconds <= share * self._budget_s
