"""Chooses which variant runs next: single fixes, then combinations, until intervals decide.

`Search.run` is a generator: it yields what to do (`Block`, `Check`) and is sent the result.
It knows no torch and no clock but the one it is given, so that decisions are tested on simulated
programs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from boundby.model.proof import Outcome
from boundby.prove.candidate import Candidate
from boundby.prove.confidence import MIN_ROUNDS
from boundby.prove.evidence import (
    BASELINE,
    Evidence,
    Ruling,
    Variant,
)
from boundby.prove.rounds import (
    MAX_ROUNDS_AT_END,
    PROMISING,
    UNTIMED_STEPS,
    Action,
    Block,
    BlockResult,
    Reply,
    Rounds,
    Steps,
)

# Rounds of a fix alone; a combination gets more.
_FIRST_ROUNDS = 5
# Steps to screen one fix: its preparation, and three rounds with their baselines.
_SCREENING_STEPS, _SCREENING_SHARE = 25, 0.5
# The share of time for fixes without a finding, before fixes that compile.
_WITHOUT_FINDING_SHARE, _FAR_SLOWER = 0.25, 2.0
# A fix without a gain alone is tried in a combination whose step it would shorten by this share.
_WORTHWHILE_SHARE = 0.02
# A program that has compiled for less than this compiles again within a few steps.
_COMPILING_S = 5.0
# At most this share of the time is kept for the most promising fix with preparation.
_EXPENSIVE_SHARE = 0.7
# On a busy machine, compiling took up to this many times what was expected.
_UNKNOWN_FACTOR = 2.0


@dataclass(slots=True, kw_only=True)
class Search:
    """The search in one process; results of earlier processes are not measured again."""

    candidates: Sequence[Candidate]
    evidence: Evidence
    now: Callable[[], float]  # seconds
    ends_at: float
    # Reserved for later processes: fixes of the start, and the final check of chosen fixes.
    reserved_s: Callable[[float], float] = lambda step_s: 0.0
    start_gain: float = 1.0  # predicted for the best fix of the start
    final_check_s: Callable[[float], float] = lambda step_s: 0.0
    random: random.Random = field(default_factory=lambda: random.Random(0))
    accept_unverified: bool = False
    max_steps: int | None = None  # of the script, if it is known to be short
    since_start_s: Callable[[], float] = lambda: 0.0
    compiles: bool = False  # the program itself, for longer than a few steps
    _uses_reserve: bool = False  # now, of the fixes of the start
    _expensive_s: float = 0.0  # kept for the most promising expensive fix while others are measured
    rounds: Rounds = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = Rounds(
            evidence=self.evidence,
            now=self.now,
            deadline=lambda: self.deadline,
            random=self.random,
            accept_unverified=self.accept_unverified,
            max_steps=self.max_steps,
            since_start_s=self.since_start_s,
            is_replaced=self._is_replaced,
        )

    def program_compiled(self, seconds: float) -> None:
        """The program's first steps have compiled for so long: under most fixes it compiles again.

        Such fixes are measured one after the other, like those that compile by themselves.
        """
        self.compiles = seconds > _COMPILING_S
        if self.compiles:
            self.candidates = [
                candidate
                if candidate.keeps_compiled
                else structs.replace(candidate, preparation_s=max(candidate.preparation_s, seconds))
                for candidate in self.candidates
            ]

    def run(self) -> Steps:
        yield from self.rounds.prepare(BASELINE)
        singles = [candidate for candidate in self.candidates if not candidate.preparation_s]
        expensive = sorted(
            (candidate for candidate in self.candidates if candidate.preparation_s),
            key=lambda candidate: (candidate.without_finding, -_promise_per_second(candidate)),
        )
        self._expensive_s = self._kept_for_expensive_s(singles, expensive)
        yield from self._compare_singles(
            [candidate for candidate in singles if not candidate.without_finding]
        )
        # Fixes without a finding leave most of the time to those with one.
        without_finding = [candidate for candidate in singles if candidate.without_finding]
        has_expensive = any(not candidate.without_finding for candidate in expensive)
        early = (
            without_finding[: self._screened_count(_WITHOUT_FINDING_SHARE)]
            if has_expensive
            else without_finding
        )
        yield from self._compare_without_finding(early)
        yield from self._extend_combination(singles)
        self._expensive_s = 0.0
        gained = False
        for candidate in expensive:
            before = self.evidence.chosen
            self._uses_reserve = (
                candidate.predicted is None or candidate.predicted.expected >= self.start_gain
            )
            yield from self._add_expensive(candidate)
            gained |= self.evidence.chosen != before
        self._uses_reserve = False
        yield from self._compare_without_finding(without_finding[len(early) :])
        if gained or len(early) < len(without_finding):
            yield from self._extend_combination(singles)
        yield from self._decide_open()
        self.evidence.out_of_time = self.rounds.is_out_of_time()
        self.evidence.done = not self.evidence.out_of_time

    def _kept_for_expensive_s(
        self, singles: Sequence[Candidate], expensive: Sequence[Candidate]
    ) -> float:
        """The time to prepare and measure the most promising expensive fix that there is time for.

        Zero if none promises more than all others, or if they would get too little time.
        """
        step_s = (self.rounds.step_ns.get(BASELINE) or 0.0) / 1e9
        left_s = self.ends_at - self.final_check_s(step_s) - self.now()
        promised = max([PROMISING, *map(_promise, singles)])
        for candidate in sorted(expensive, key=_promise, reverse=True):
            round_s = self.rounds.round_s([(candidate.key,)], BASELINE)
            needed_s = self._expected_s(candidate) + MIN_ROUNDS * round_s
            if _promise(candidate) > promised and needed_s <= _EXPENSIVE_SHARE * left_s:
                return needed_s
        return 0.0

    def timed(self, variant: Variant, steps: int) -> Steps:
        """Measure one variant alone, in a separate process, without the fixes that cannot be
        applied."""
        yield from self.rounds.prepare(variant)
        if variant in self.evidence.rulings:
            variant = yield from self._without_failing_fixes(variant)
            yield from self.rounds.prepare(variant)
        result = yield Block(
            variant=variant,
            untimed=UNTIMED_STEPS,
            timed=max(steps, self.rounds.timed_steps(variant)),
        )
        assert isinstance(result, BlockResult)
        if not self.rounds.is_settled(variant, result):
            self.evidence.timed_ns = list(result.times_ns)
            self.evidence.timed_peak_bytes = result.peak_bytes
        self.evidence.done = True

    def _without_failing_fixes(self, variant: Variant) -> Generator[Action, Reply, Variant]:
        """The fixes of a variant that can be applied, tried one by one."""
        ruled = self.evidence.rulings
        applied: Variant = BASELINE
        for key in variant:
            added = (*applied, key)
            yield from self.rounds.prepare(added)
            if added in ruled:
                self.evidence.left_out[key] = ruled[added].why
            else:
                applied = added
        return applied

    def _batches(self, singles: Sequence[Candidate]) -> list[Sequence[Candidate]]:
        """Groups of fixes to compare together: one group, unless its rounds take too long."""
        at_once = max(1, self._screened_count(_SCREENING_SHARE))
        return [singles[at : at + at_once] for at in range(0, len(singles), at_once)]

    def _screened_count(self, share: float) -> int:
        """How many fixes can be screened in this share of the remaining time."""
        a_fix_s = _SCREENING_STEPS * (self.rounds.step_ns.get(BASELINE) or 0.0) / 1e9
        left_s = max(0.0, self.deadline - self.now())
        return int(share * left_s / a_fix_s) if a_fix_s else len(self.candidates)

    def _compare_singles(self, fixes: Sequence[Candidate]) -> Steps:
        """A few rounds of each fix alone, the first of the sequence first."""
        singles = [candidate for candidate in self.candidates if not candidate.preparation_s]
        for some in self._batches(fixes):
            yield from self.rounds.compare(
                [(candidate.key,) for candidate in some], BASELINE, most=_FIRST_ROUNDS
            )
            self._choose_best_single(singles)

    def _compare_without_finding(self, without_finding: Sequence[Candidate]) -> Steps:
        """Compare fixes without a finding, those with the fastest first steps first.

        Their first steps are all there is to rank them by. Far slower ones are left out.
        """
        speed: dict[str, float] = {}
        for candidate in without_finding:
            if not self.rounds.is_out_of_time():
                yield from self.rounds.prepare((candidate.key,))
            step_ns, base_ns = (
                self.rounds.step_ns.get((candidate.key,)),
                self.rounds.step_ns.get(BASELINE),
            )
            if not step_ns or not base_ns:
                continue
            speed[candidate.key] = base_ns / step_ns
            if speed[candidate.key] * _FAR_SLOWER < 1:
                # Or has the host become slower? The program as it is, once more.
                repeated = yield Block(variant=BASELINE, untimed=UNTIMED_STEPS, timed=1)
                assert isinstance(repeated, BlockResult)
                speed[candidate.key] = max(base_ns, *repeated.times_ns) / step_ns
            if speed[candidate.key] * _FAR_SLOWER < 1:
                why = f"its first steps took {1 / speed[candidate.key]:.1f} times as long"
                ruling = Ruling(outcome=Outcome.NO_GAIN, why=why)
                self.evidence.rulings.setdefault((candidate.key,), ruling)
        yield from self._compare_singles(
            sorted(without_finding, key=lambda one: -speed.get(one.key, 0.0))
        )

    def _choose_best_single(self, singles: Sequence[Candidate]) -> None:
        evidence = self.evidence
        confirmed = [
            candidate
            for candidate in singles
            if self.rounds.is_confirmed((candidate.key,), BASELINE)
        ]
        if confirmed and len(evidence.chosen) < 2:
            best = max(
                confirmed, key=lambda one: evidence.comparison_of((one.key,), BASELINE).middle
            )
            evidence.chosen = (best.key,)

    def _is_replaced(self, variant: Variant) -> bool:
        """Whether a fix looks slower than a chosen one that excludes it: then it is not decided."""
        evidence = self.evidence
        if len(variant) != 1 or variant == evidence.chosen:
            return False
        alone = evidence.comparison_of(variant, BASELINE)
        return len(alone.log_ratios) >= MIN_ROUNDS and any(
            not self._candidate_of(key).is_compatible_with([self._candidate_of(variant[0])])
            and evidence.comparison_of((key,), BASELINE).middle > alone.middle
            for key in evidence.chosen
        )

    def _extend_combination(self, pool: Sequence[Candidate]) -> Steps:
        """Add fixes to the chosen ones while one of them helps, the best first."""
        while not self.rounds.is_out_of_time():
            chosen = self.evidence.chosen
            if not chosen:
                return
            variants = [
                (*chosen, candidate.key)
                for candidate in pool
                if self._may_be_added(candidate, chosen)
            ]
            variants = [variant for variant in variants if variant not in self.evidence.rulings]
            if not variants:
                return
            yield from self.rounds.compare(variants, chosen)
            if not self._choose_best(variants, chosen):
                return

    def _add_expensive(self, candidate: Candidate) -> Steps:
        """Measure a fix that is expensive to prepare together with the chosen ones."""
        if _UNKNOWN_FACTOR * self._expected_s(candidate) > self.deadline - self.now():
            # It may take all the time that is left: what looks faster is decided before.
            yield from self._decide_open(least=PROMISING)
        chosen = self.evidence.chosen
        if candidate.key in chosen:
            return
        compatible = [
            key for key in chosen if candidate.is_compatible_with([self._candidate_of(key)])
        ]
        variant = (*compatible, candidate.key)
        if self._skip_if_too_long(candidate, variant, chosen):
            return
        yield from self.rounds.compare([variant], chosen)
        self._choose_best([variant], chosen)

    def _decide_open(self, least: float = 1.0) -> Steps:
        """Use the remaining time for undecided fixes that look faster than by this ratio."""
        while not self.rounds.is_out_of_time():
            chosen = self.evidence.chosen
            variants = []
            for candidate in self.candidates:
                variant = (*chosen, candidate.key)
                last = self.evidence.comparison_of(variant, chosen)
                if (
                    candidate.key not in chosen
                    and last.log_ratios
                    and last.middle > least
                    and self.rounds.is_open(variant, chosen, MAX_ROUNDS_AT_END)
                ):
                    variants.append(variant)
            if not variants:
                return
            yield from self.rounds.compare(variants, chosen, most=MAX_ROUNDS_AT_END, patience=1.0)
            if not self._choose_best(variants, chosen) and not self.rounds.is_out_of_time():
                return

    def _choose_best(self, variants: Sequence[Variant], against: Variant) -> bool:
        better = [variant for variant in variants if self.rounds.is_confirmed(variant, against)]
        if not better:
            return False
        self.evidence.chosen = max(
            better, key=lambda variant: self.evidence.comparison_of(variant, against).middle
        )
        return True

    def _may_be_added(self, candidate: Candidate, chosen: Variant) -> bool:
        if candidate.key in chosen or not candidate.is_compatible_with(
            [self._candidate_of(key) for key in chosen]
        ):
            return False
        if self.evidence.comparison_of((*chosen, candidate.key), chosen).decision == "no gain":
            return False
        comparison = self.evidence.comparison_of((candidate.key,), BASELINE)
        if (candidate.key,) != chosen and (candidate.key,) in self.evidence.rulings:
            return False
        if not comparison.log_ratios:
            return False
        if comparison.decision == "faster" or (
            comparison.decision == "open" and comparison.middle > 1
        ):
            return True
        # A small part of the slow program may be a worthwhile part of the faster one.
        chosen_ns = self.rounds.step_ns.get(chosen)
        return chosen_ns is not None and comparison.saved_ns > _WORTHWHILE_SHARE * chosen_ns

    @property
    def deadline(self) -> float:
        step_s = (self.rounds.step_ns.get(BASELINE) or 0.0) / 1e9
        starts_s = 0.0 if self._uses_reserve else self.reserved_s(step_s)
        is_checked = self.evidence.chosen or starts_s or self._expensive_s
        final_s = self.final_check_s(step_s) if is_checked else 0.0
        return self.ends_at - starts_s - final_s - self._expensive_s

    def _skip_if_too_long(self, candidate: Candidate, variant: Variant, against: Variant) -> bool:
        """Skip a variant whose preparation would leave no time to measure it."""
        if variant in self.rounds.prepared or variant in self.evidence.rulings:
            return False
        expected, left_s = self._expected_s(candidate), self.deadline - self.now()
        needed = 3 * self.rounds.round_s([variant], against)
        if expected + needed < left_s:
            return False
        if self.evidence.comparison_of(variant, against).log_ratios:
            return True  # measured in an earlier process of the script: what is known stays
        why = f"its first use is expected to take {expected:.0f} s, of {max(left_s, 0):.0f} s left"
        self.evidence.rulings[variant] = Ruling(outcome=Outcome.SKIPPED, why=why, wants_time=True)
        return True

    def _expected_s(self, candidate: Candidate) -> float:
        """The declared preparation time, scaled by how long the slowest other one took."""
        scales = []
        for keys, seconds in self.evidence.preparation_s.items():
            prepared = [
                other for other in self.candidates if other.key in keys and other.preparation_s
            ]
            if prepared:
                scales.append(seconds / max(other.preparation_s for other in prepared))
        return candidate.preparation_s * max(scales, default=1.0)

    def _candidate_of(self, key: str) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.key == key)


def _promise(candidate: Candidate) -> float:
    """The predicted speed-up; 1 if none is predicted."""
    return 1.0 if candidate.predicted is None else candidate.predicted.expected


def _promise_per_second(candidate: Candidate) -> float:
    """What its preparation is expected to bring: the logarithm of the speed-up for each second."""
    return math.log(_promise(candidate)) / candidate.preparation_s
