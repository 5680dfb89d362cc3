"""All processes of one experiment so far, and what they say about each combination of fixes."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from boundby.model.diagnosis import Peak
from boundby.prove import fork_likeness as likeness
from boundby.prove import numerics, speedup
from boundby.prove.outcome import OPEN_WORD, Result, fewest, is_short_of_runs, outcome_of
from boundby.prove.trial_result import Notes, Start, TrialResult

Arm = tuple[str, ...]
BASELINE: Arm = ()

# Less memory is worth a word even where no time is gained.
_LESS = 0.8
# A process that nobody has seen yet may take this much longer than what its parts were seen to.
_LONGER = 1.2
_USUAL_S = 30.0
# What drivers, their libraries and pools of workers say in a process that should not be a fork.
_OF_FORKS = re.compile(
    r"fork|process ?pool|(cuda|cudnn|cublas|driver|hip|nccl).*initiali[sz]", re.IGNORECASE
)


class TrialStore:
    """Append-only; every question is answered from the processes alone, so it can be resumed."""

    def __init__(
        self,
        observed: Sequence[TrialResult] = (),
        *,
        precisions: Mapping[str, str | None] | None = None,
        environments: Collection[str] = (),
        silent: Collection[str] = (),
        preparations: Mapping[str, float] | None = None,
        again: Mapping[str, float] | None = None,
        may_fork: bool = False,
    ) -> None:
        """`environments`: treatments that leave no trace in the program itself; `silent`: of users'
        own, which need not say what they change.

        `preparations`: seconds that a treatment takes to start; `again`: and once more where its
        program is compared without dropout first. `may_fork`: whether forks of a prepared process
        are wanted, should they prove to be alike.
        """
        self.observed = list(observed)
        self._may_fork = may_fork
        self._forks: tuple[int, bool | None] = (-1, None)
        self._precisions = precisions or {}
        self._environments = environments
        self._silent = silent
        self._preparations = preparations or {}
        self._again = again or {}
        self._known: dict[tuple[frozenset[str], int], Result] = {}

    def add(self, observed: TrialResult) -> None:
        self.observed.append(observed)

    @property
    def forks(self) -> bool | None:
        """Whether forked processes count, as one of the baseline has shown; None before that."""
        if self._forks[0] != len(self.observed):
            self._forks = (len(self.observed), self._judge_forks())
        return self._forks[1]

    def _judge_forks(self) -> bool | None:
        if not self._may_fork or any(one.not_forked for one in self.observed):
            return False
        baselines = [one for one in self._of(BASELINE) if not one.cut]
        fresh = [one for one in baselines if one.start == "fresh"]
        forked = [one for one in baselines if one.start == "forked"]
        if not forked:
            # Begun without, it goes on without: nothing is measured twice.
            return None if len(self.observed) <= 1 else False
        return bool(fresh) and likeness.unlike(fresh[0], forked) is None

    def start(self, arm: Arm) -> Start:
        """How processes of an arm are begun: those that are compared, in the same way.

        Environments are for fresh ones, and so is what may have failed because it was forked.
        """
        if not self.forks or self._environments_in(arm):
            return "fresh"
        failed = (frozenset(one.arm) for one in self.observed if _fails_by_fork(one))
        return "fresh" if any(one <= frozenset(arm) for one in failed) else "forked"

    def tried(self, arm: Arm, *, beside: Arm | None = None) -> list[TrialResult]:
        """Every process of an arm that came to its own end, whatever that was.

        `beside`: those that were begun as processes of that other arm are.
        """
        return [one for one in self._begun(arm, beside) if not one.cut]

    def _begun(self, arm: Arm, beside: Arm | None = None) -> list[TrialResult]:
        start = self.start(arm if beside is None else beside)
        return [one for one in self._of(arm) if one.start == start]

    def _of(self, arm: Arm) -> list[TrialResult]:
        wanted = frozenset(arm)
        return [one for one in self.observed if not one.reference and frozenset(one.arm) == wanted]

    def since_baseline(self, arm: Arm) -> list[TrialResult]:
        """What came to its end since the last baseline, of all that is begun as an arm is."""
        start = self.start(arm)
        ended = [one for one in self.observed if not one.reference and not one.cut]
        begun = [one for one in ended if one.start == start]
        return list(itertools.takewhile(lambda one: one.arm, reversed(begun)))

    def timed(self, arm: Arm, *, beside: Arm | None = None) -> list[TrialResult]:
        return [
            one for one in self.tried(arm, beside=beside) if one.problem is None and one.samples_ns
        ]

    @property
    def reference(self) -> Notes | None:
        found = [one for one in self.observed if one.reference and one.problem is None]
        return found[0].notes if found else None

    @property
    def has_dropout(self) -> bool:
        baseline = self.timed(BASELINE)
        return baseline[0].notes.has_dropout if baseline else True

    def seconds(self, arm: Arm) -> float:
        """How long a process of an arm is going to take, going by those before.

        The second of a kind is quicker where compilers keep what they made: going by the last.
        """
        own = self.tried(arm)
        if own:
            return own[-1].seconds - self._spared_s(arm, own[-1])
        cut = [_LONGER * one.seconds for one in self._begun(arm)]
        usual = self._usual_s(arm)
        if usual is None:
            return _USUAL_S
        longer = sum(self._longer_s(key) for key in arm)
        return max(_LONGER * usual + longer, *cut, 0.0)

    def _usual_s(self, arm: Arm) -> float | None:
        """How long baselines take that are begun as an arm is; all of them, where none is yet."""
        baselines = self.tried(BASELINE, beside=arm) or self._of(BASELINE)
        return statistics.median(one.seconds for one in baselines) if baselines else None

    def _longer_s(self, key: str) -> float:
        """How much longer than a baseline a treatment's first process takes, its own or a like's.

        Together with another it is new to the compiler's cache: its second is no measure.
        """
        usual = self._usual_s((key,)) or 0.0
        own = [one.seconds - usual for one in self.tried((key,))[:1]]
        if own:
            return max(0.0, own[0])
        expected = self._prepares_s(key)
        alike = [
            self._as_long(expected, others, one.seconds - (self._usual_s((other,)) or 0.0))
            for other in self._preparations
            if (others := self._prepares_s(other))
            # One that broke, or left the program alone, did not get so far.
            for one in self.timed((other,))[:1]
            if any(one.touched.values())
        ]
        return max(alike, default=expected)

    @staticmethod
    def _as_long(expected_s: float, others_s: float, took_s: float) -> float:
        """What is expected of one, where another of its kind took so long instead of `others_s`.

        A model that compiles in half the time is tuned in half of it too; one that takes longer to
        compile has more code, not more products to be tuned.
        """
        longer = _LONGER * max(0.0, took_s)
        return longer if expected_s == others_s else min(1.0, longer / others_s) * expected_s

    def _prepares_s(self, key: str) -> float:
        """How long a treatment's first process prepares, as it is foreseen for any program."""
        again_s = self._again.get(key, 0.0) if self.has_dropout else 0.0
        return self._preparations.get(key, 0.0) + again_s

    def _spared_s(self, arm: Arm, last: TrialResult) -> float:
        """What the next of an arm is spared, at least: it is not compared without dropout again.

        That is the part of what it took longer than a baseline that went into preparing once more.
        """
        again_s = sum(self._again.get(key, 0.0) for key in arm)
        if not again_s or not last.notes.exact or not self.has_dropout:
            return 0.0
        both_s = again_s + sum(self._preparations.get(key, 0.0) for key in arm)
        return max(0.0, last.seconds - (self._usual_s(arm) or 0.0)) * again_s / both_s

    def relative(self, arm: Arm) -> float | None:
        """The step's time as a share of the baseline's, of processes that were begun alike."""
        if arm == BASELINE:
            return 1.0
        found = self.result(arm).speedup
        return 1 / found.median if found is not None else None

    def result(self, arm: Arm) -> Result:
        key = (frozenset(arm), len(self.observed))
        if key not in self._known:
            self._known[key] = self._judge(arm)
        return self._known[key]

    def concluded(self, arm: Arm) -> Result:
        """As it may be told: what is to be kept needs seeds enough to hold its losses against."""
        result = self.result(arm)
        seeds = len(self.timed(BASELINE, beside=arm))
        if not result.held or not self.has_dropout or seeds >= numerics.FEWEST_SEEDS:
            return result
        why = (
            f"{OPEN_WORD} with dropout on, its losses are to be held against "
            f"{numerics.FEWEST_SEEDS} seeds of the script as it is, and there are {seeds}"
        )
        return replace(result, outcome="no gain", why=why, open=True)

    def _judge(self, arm: Arm) -> Result:
        tried, timed = self.tried(arm), self.timed(arm)
        base = self.timed(BASELINE, beside=arm)
        if not tried or not base:
            return self._not_run(arm)
        log = tried[-1].log
        problem = next((one.problem for one in tried if one.problem), None)
        if problem is None and not timed:
            problem = "it ended before its steps could be timed"
        if problem is not None:
            return Result(outcome="failed", why=problem, log=log)
        idle = self._idle(arm, timed)
        if idle is not None:
            return Result(outcome="not run", why=idle)
        recompiled = statistics.median(one.graphs_while_clean for one in timed)
        if recompiled > max(one.graphs_while_clean for one in base):
            words = f"it recompiles for ever: {recompiled:.0f} graphs in {len(timed[0].samples_ns)}"
            return Result(outcome="failed", why=f"{words} steps that should be steady", log=log)
        return self._compared(arm, base, timed)

    def _idle(self, arm: Arm, timed: Sequence[TrialResult]) -> str | None:
        """Why there is nothing to compare: no change was made. None where one was.

        Of several, one that left the program as it is hides among the others, unless each was
        seen at work alone.
        """
        counts = [pair for one in timed for pair in one.touched.items()]
        left = [word for word, count in counts if not count]
        changed = any(count for _, count in counts) or self._environments_in(arm)
        changed |= any(key in self._silent for key in arm)
        if changed and not (left and not all(self.timed((key,)) for key in arm)):
            return None
        return left[0] if left else "it found nothing in the script to change"

    def _not_run(self, arm: Arm) -> Result:
        failed = [one for one in self._of(arm) if _fails_by_fork(one)]
        if self.forks and failed:
            why = f"{failed[-1].problem} (there was no time to see it in a fresh process too)"
            return Result(outcome="failed", why=why, log=failed[-1].log)
        return Result(outcome="not run", why=self._why_not_run(arm))

    def _why_not_run(self, arm: Arm) -> str:
        cut = [one.seconds for one in self._begun(arm) if one.cut]
        if cut:
            return f"the budget ended while it ran, after {cut[-1]:.0f} s"
        return f"its turn did not come: a run of it takes about {self.seconds(arm):.0f} s"

    def _compared(self, arm: Arm, base: list[TrialResult], timed: list[TrialResult]) -> Result:
        checked = numerics.find_verdict(
            [one.notes for one in base],
            [one.notes for one in timed],
            self.reference,
            self._precision(arm),
        )
        scatter = self.spread()
        paired = speedup.in_pairs(self._turns(arm), frozenset(arm), scatter)
        faster, spread = paired or (
            speedup.estimate(
                [one.samples_ns for one in base], [one.samples_ns for one in timed], scatter
            ),
            float(scatter.std()),
        )
        runs = min(len(base), len(timed))
        outcome, why = outcome_of(faster, checked, runs, spread, between=self._is_between(arm))
        peak = Peak(before=_peak(base), after=_peak(timed))
        if outcome == "no gain" and peak.before and peak.after and peak.after < _LESS * peak.before:
            why += f"; but it needs {1 - peak.after / peak.before:.0%} less memory"
        return Result(
            outcome=outcome,
            why=why,
            runs=len(timed),
            speedup=faster,
            numerics=checked,
            peak=peak,
            log=timed[-1].log,
            open=why.startswith(OPEN_WORD),
            lacking=max(1, fewest(faster, spread) - runs) if is_short_of_runs(why) else 0,
        )

    def _is_between(self, arm: Arm) -> bool:
        """Whether there are baselines before and after it."""
        order = [turn.fix for turn in self._turns(arm)]
        at = order.index(frozenset(arm) or None)
        return None in order[:at] and None in order[at:]

    def _turns(self, arm: Arm) -> list[speedup.Turn]:
        """All that were timed, in their order, of those that were begun as an arm's are."""
        start = self.start(arm)
        return [
            speedup.Turn(frozenset(one.arm) or None, one.samples_ns)
            for one in self.observed
            if one.samples_ns and not one.reference and one.start == start and not one.problem
        ]

    def spread(self) -> speedup.Floats:
        arms = {frozenset(one.arm) for one in self.observed if not one.reference}
        groups = [
            [one.samples_ns for one in self.timed(tuple(arm))] for arm in sorted(arms, key=sorted)
        ]
        return speedup.scatter(groups)

    def _precision(self, arm: Arm) -> str | None:
        """The coarsest of an arm's precisions."""
        order = ("bfloat16", "float16", "tf32", "float32")
        known = {self._precisions.get(key) for key in arm}
        return next((name for name in order if name in known), None)

    def _environments_in(self, arm: Arm) -> bool:
        return any(key in self._environments for key in arm)


def _fails_by_fork(observed: TrialResult) -> bool:
    """Whether a fresh process may do better: one that was killed, or that says it is for the fork.

    Any other error that a script ends with is its own: forks of it as it is run like fresh ones.
    """
    if observed.start != "forked" or observed.problem is None or observed.cut:
        return False
    return not observed.reported or _OF_FORKS.search(observed.problem) is not None


def _peak(observed: Sequence[TrialResult]) -> float | None:
    peaks = [one.peak_bytes for one in observed if one.peak_bytes is not None]
    return statistics.median(peaks) if peaks else None
