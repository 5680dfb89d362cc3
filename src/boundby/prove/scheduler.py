"""What to run next: baseline and fixes in turn, until it is clear enough or the time is up.

First a look at each fix, the most promising for its time first, as long as there is time left for
what they make together. Then rounds A B C D A B C D, so that every fix has a baseline near it in
time; a fix leaves them when its interval is narrow, or when it is plainly faster or slower. Then
the combinations, and before a dear one, the best so far until it is sure of itself; then other ways
to do what was done already, where there is time; then the best of them in turn with the baseline.
Nothing is begun that does not fit. Everything follows from the ledger: a resumed experiment goes on
where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boundby.model.diagnosis import FIXES_JOINED, Speedup
from boundby.prove.combination import Candidate, Foresee, combine, expected_arm
from boundby.prove.numerics import FEWEST_SEEDS
from boundby.prove.priorities import CandidateRanking, promised
from boundby.prove.results import BASELINE, Arm, TrialStore
from boundby.prove.speedup import half_width
from boundby.prove.trial_result import Start, TrialResult

# Half the interval, as a share of the speed-up.
_NARROW = 0.05
_NARROW_AT_THE_END = 0.035
_PLAINLY_FASTER, _PLAINLY_SLOWER = 1.05, 0.95
_MOST_RUNS = 6
# Where these do not tell, and there is time that nothing else needs.
_MOST_RUNS_WHILE_OPEN = 16
_FEWEST_BASELINES = 2
# So many runs after the last baseline, and with a fix that takes so many times as long as another,
# it is run again: what is near in time differs least.
_FAR, _CHEAP = 2, 2.0
_MOST_RUNS_AT_THE_END = 8
# Of the budget: when rounds after the first have to be over.
_ROUNDS = 0.6
# Two ways to mend one fault: the one behind by more than this is not looked at again.
_BEHIND = 0.97
# Of the step: what is worth a process of parts that nobody has looked at alone.
_LARGE = 0.2
# Making sure of the best so far comes first where a combination takes this many times as long.
_DEAR = 3.0
# How much longer than expected compiling may take, alone and then together with others.
_DOUBT = 1.3
# Of fresh processes: the time that must be left for forks to be worth their preparation.
_PAYING = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One process to run, and why, in words; `kept_s`: the time that it has to leave.

    `start`: how it is begun.
    """

    arm: Arm
    why: str
    reference: bool = False
    start: Start = "fresh"
    kept_s: float = 0.0


class Schedule:
    def __init__(
        self,
        candidates: Sequence[Candidate],
        ledger: TrialStore,
        budget_s: float,
        foresee: Foresee = lambda _: None,
    ) -> None:
        self._candidates = list(candidates)
        self._ledger = ledger
        self._budget_s = budget_s
        self._foresee = foresee
        self._hopes = CandidateRanking(self._candidates, ledger)

    def next(self, elapsed_s: float) -> Step | None:
        """None when all is settled, or nothing more fits into the budget."""
        if not self._ledger.tried(BASELINE):
            return Step(arm=BASELINE, why="as it is")
        if not self._candidates:
            return None
        if self._ledger.forks is None and self._forks_pay(elapsed_s):
            return Step(arm=BASELINE, why="as it is, forked", start="forked")
        if not any(one.reference for one in self._ledger.observed):
            if not self._fits(elapsed_s, self._ledger.seconds(BASELINE)):
                return None
            return Step(
                arm=BASELINE,
                why="in float32, to compare with",
                reference=True,
                start=self._ledger.start(BASELINE),
            )
        return (
            self._first_look(elapsed_s)
            or self._yardstick(elapsed_s)
            or self._leap(elapsed_s)
            or self._round(elapsed_s)
            or self._combination(elapsed_s)
            or self._late_look(elapsed_s)
            or self._end(elapsed_s)
            # What time is left goes to what is still open.
            or self._round(elapsed_s, 1.0, _MOST_RUNS_WHILE_OPEN)
        )

    @property
    def final(self) -> Arm:
        """The best combination as far as it is known."""
        return combine(self._candidates, self._ledger, self._foresee).arm

    def _first_look(self, elapsed_s: float) -> Step | None:
        """Each fix once, the largest saving for its time first; those that do not fit give way."""
        possible = self._possible(elapsed_s)
        ranked = [
            one for one in self._hopes.ranked(possible) if not self._hopes.is_second(one, possible)
        ]
        kept = self._kept_free_s(possible)
        for one in ranked:
            doubt = _DOUBT if one.preparation_s else 1.0
            if one.asked or self._fits(elapsed_s, doubt * (self._seconds(one) + kept)):
                return self._try(elapsed_s, one.key)
        if any(self._ledger.tried((one.key,)) for one in self._candidates):
            return None
        # Too little time for all: one fix by itself then.
        return next((self._try(elapsed_s, one.key) for one in ranked), None)

    def _yardstick(self, elapsed_s: float) -> Step | None:
        """A second baseline, with nudged weights, where a fix's numbers were refused beside one:
        only that shows how far rounding errors go in this program."""
        for one in self._candidates:
            arm = (one.key,)
            if len(self._baselines(arm)) != 1 or not self._ledger.tried(arm):
                continue
            refused = self._ledger.result(arm).outcome == "wrong numbers"
            if refused and self._fits(elapsed_s, self._baseline_s(arm)):
                return self._baseline(arm)
        return None

    def _late_look(self, elapsed_s: float) -> Step | None:
        """The others, as long as there is time to look at the best once more."""
        final = self.final
        again = final != BASELINE and len(self._ledger.timed(final)) < 2
        kept = self._baselines_s(final) + (self._ledger.seconds(final) if again else 0.0)
        for one in self._hopes.ranked(self._possible(elapsed_s)):
            if self._fits(elapsed_s, self._seconds(one) + kept):
                return self._try(elapsed_s, one.key)
        return None

    def _leap(self, elapsed_s: float) -> Step | None:
        """Too little time for a look at each and for all together: together, unseen, then.

        Only for a large promise, and not for one way of several when another was seen to work.
        """
        possible = [
            one
            for one in self._hopes.hopeful(self._possible(elapsed_s))
            if self._ledger.tried((one.key,)) or not self._hopes.has_working_rival(one)
        ]
        arm = expected_arm(possible, self._ledger, self._foresee)
        unseen = [one for one in possible if one.key in arm and not self._ledger.tried((one.key,))]
        hope = max((promised(one) for one in unseen), default=0.0)
        if len(arm) < 2 or hope < _LARGE or self._ledger.tried(arm):
            return None
        if not self._fits(elapsed_s, self._ledger.seconds(arm) + self._baselines_s(arm)):
            return None
        return self._try(elapsed_s, *arm)

    def _possible(self, elapsed_s: float) -> list[Candidate]:
        """Fixes that were looked at, or that there is still time to look at."""
        return [
            one
            for one in self._candidates
            if self._ledger.tried((one.key,)) or self._fits(elapsed_s, self._seconds(one))
        ]

    def _round(
        self, elapsed_s: float, share: float = _ROUNDS, while_open: int = _MOST_RUNS
    ) -> Step | None:
        """A fix that is not settled once more, or the baseline that goes with it."""
        tries = {one.key: len(self._ledger.tried((one.key,))) for one in self._candidates}
        open_ = [
            one
            for one in self._candidates
            if tries[one.key] and not self._is_settled(one, while_open)
        ]
        looked = [one for one in self._candidates if tries[one.key]]
        kept = self._kept_free_s(looked)
        for candidate in sorted(open_, key=lambda one: tries[one.key]):
            seconds = self._seconds(candidate)
            arm = (candidate.key,)
            if self._lacks_baseline(arm):
                both = seconds + self._baseline_s(arm)
                if self._fits(elapsed_s, both + kept) and self._fits(elapsed_s, both, share):
                    return self._baseline(arm)
            elif self._fits(elapsed_s, seconds + kept) and self._fits(elapsed_s, seconds, share):
                return self._try(elapsed_s, candidate.key)
        return None

    def _combination(self, elapsed_s: float) -> Step | None:
        combined = combine(self._candidates, self._ledger, self._foresee)
        wanted = combined.wanted
        if wanted is None:
            return None
        if self._until_held_s(combined.arm) * _DEAR < self._ledger.seconds(wanted):
            surer = self._make_sure(elapsed_s, combined.arm)
            if surer is not None:
                return surer
        # Past the first, each leaves time to look at the best again.
        again = len(combined.arm) > 1 and len(self._ledger.timed(combined.arm)) < 2
        baseline_first = bool(self._ledger.tried(wanted)) and self._lacks_baseline(wanted)
        kept = max(self._baselines_s(wanted), self._baseline_s(wanted) if baseline_first else 0.0)
        kept += self._ledger.seconds(combined.arm) if again else 0.0
        if not self._fits(elapsed_s, self._ledger.seconds(wanted) + kept):
            return None
        return self._baseline(wanted) if baseline_first else self._try(elapsed_s, *wanted)

    def _until_held_s(self, arm: Arm) -> float:
        """What it takes until there are enough runs of an arm, each with a baseline."""
        return self._ledger.result(arm).lacking * (
            self._ledger.seconds(arm) + self._baseline_s(arm)
        )

    def _make_sure(self, elapsed_s: float, arm: Arm) -> Step | None:
        """An arm once more, or the baseline that goes with it; None once there are enough."""
        if not self._ledger.result(arm).lacking:
            return None
        if self._lacks_baseline(arm):
            both = self._baseline_s(arm) + self._ledger.seconds(arm)
            return self._baseline(arm) if self._fits(elapsed_s, both) else None
        return (
            self._try(elapsed_s, *arm) if self._fits(elapsed_s, self._ledger.seconds(arm)) else None
        )

    def _end(self, elapsed_s: float) -> Step | None:
        """The best combination and the baseline in turn, until the interval is narrow."""
        final = self.final
        baselines = len(self._baselines(final))
        is_enough = not (self._ledger.has_dropout and baselines < FEWEST_SEEDS)
        if final != BASELINE:
            result = self._ledger.result(final)
            assert result.speedup is not None
            narrow = half_width(result.speedup) <= _NARROW_AT_THE_END
            is_enough &= result.runs >= _MOST_RUNS_AT_THE_END or (narrow and result.runs > 1)
        if is_enough:
            return None
        lacks = baselines < _FEWEST_BASELINES or self._lacks_baseline(final)
        once_s = self._ledger.seconds(final)
        if final != BASELINE and not lacks and self._fits(elapsed_s, once_s):
            return Step(arm=final, why=words(final), start=self._ledger.start(final))
        # Past so many, baselines alone tell no more: the other is to come after it.
        before_s = once_s if baselines >= _MOST_RUNS_AT_THE_END else 0.0
        if self._fits(elapsed_s, self._baseline_s(final) + before_s):
            return self._baseline(final)
        return None

    def _baseline(self, arm: Arm) -> Step:
        """The script as it is, begun as it is for an arm."""
        return Step(arm=BASELINE, why=words(BASELINE), start=self._ledger.start(arm))

    def _baselines(self, arm: Arm) -> list[TrialResult]:
        return self._ledger.tried(BASELINE, beside=arm)

    def _lacks_baseline(self, arm: Arm) -> bool:
        """Whether the script as it is comes next, before an arm is run again.

        There is one for every run of it, and one since its last; and where it is cheap beside the
        arm, another for every few runs of others.
        """
        if len(self._baselines(arm)) <= len(self._ledger.tried(arm)):
            return True
        since = self._ledger.since_baseline(arm)
        far = len(since) >= _FAR and _CHEAP * self._baseline_s(arm) < self._ledger.seconds(arm)
        return far or any(frozenset(one.arm) == frozenset(arm) for one in since)

    def _baseline_s(self, arm: Arm) -> float:
        """How long a baseline takes that is begun as an arm is."""
        begun = self._baselines(arm)
        return begun[-1].seconds if begun else self._ledger.seconds(BASELINE)

    def _forks_pay(self, elapsed_s: float) -> bool:
        """Preparing takes about as long as a fresh process, and is saved with each one after it."""
        return self._fits(elapsed_s, _PAYING * self._ledger.seconds(BASELINE))

    def _try(self, elapsed_s: float, *arm: str) -> Step:
        """However long it turns out to take, without a second baseline little is told."""
        kept = self._baselines_s(arm)
        fits = self._fits(elapsed_s, self._ledger.seconds(arm) + kept)
        start = self._ledger.start(arm)
        return Step(arm=arm, why=words(arm), kept_s=kept if fits else 0.0, start=start)

    def _kept_free_s(self, possible: Sequence[Candidate]) -> float:
        """Time for what the fixes make together, once, and for the baselines it is held against."""
        expected = expected_arm(self._hopes.hopeful(possible), self._ledger, self._foresee)
        together = len(expected) > 1 and not self._ledger.tried(expected)
        return self._baselines_s(expected) + (self._ledger.seconds(expected) if together else 0.0)

    def _baselines_s(self, arm: Arm) -> float:
        lacking = max(0, _FEWEST_BASELINES - len(self._baselines(arm)))
        return lacking * self._baseline_s(arm)

    def _seconds(self, candidate: Candidate) -> float:
        return self._ledger.seconds((candidate.key,))

    def _is_settled(self, candidate: Candidate, while_open: int) -> bool:
        result = self._ledger.result((candidate.key,))
        if result.speedup is None or not result.computes_right:
            return True
        # One baseline may be a lucky one.
        if len(self._ledger.timed(BASELINE, beside=(candidate.key,))) < _FEWEST_BASELINES:
            return False
        if result.speedup.high < _PLAINLY_SLOWER:
            return True
        # Who has gone on goes on to the end: to stop at the first look that tells would be to look
        # until chance does.
        goes_on = result.open or result.runs > _MOST_RUNS
        most = while_open if goes_on else _MOST_RUNS
        if result.runs >= most or self._is_behind(candidate, result.speedup):
            return True
        if half_width(result.speedup) <= _NARROW and result.runs > 1:
            return True
        return not goes_on and result.held and result.speedup.low > _PLAINLY_FASTER

    def _is_behind(self, candidate: Candidate, speedup: Speedup) -> bool:
        others = [
            result.speedup.median
            for other in self._candidates
            if other.is_rival(candidate) and other.key != candidate.key
            for result in [self._ledger.result((other.key,))]
            if result.speedup is not None and result.computes_right
        ]
        return any(speedup.median < _BEHIND * other for other in others)

    def _fits(self, elapsed_s: float, seconds: float, share: float = 1.0) -> bool:
        return elapsed_s + seconds <= share * self._budget_s


def words(arm: Arm) -> str:
    """An arm as a user knows it: by the names of its fixes."""
    return FIXES_JOINED.join(key.partition("/")[2] for key in arm) or "as it is"
