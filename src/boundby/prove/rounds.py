"""Measures variants: prepares them, runs rounds of blocks in random order, checks faster ones.

Its methods are generators: they yield what to do (`Block`, `Check`) and are sent the result. They
know no torch and no clock but the one they are given, so that decisions are tested on simulated
programs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from boundby.model.proof import Numerics, Outcome
from boundby.prove.confidence import MIN_ROUNDS
from boundby.prove.evidence import BASELINE, Evidence, Ruling, Variant

# The first step of a block is not timed: after a switch the pipeline refills.
UNTIMED_STEPS = 1
# Timed steps of a block: four; fewer if steps are slow or few, more if they are short.
_TIMED_STEPS, _MIN_TIMED_STEPS, _MAX_TIMED_STEPS = 4, 2, 50
# Seconds in ns, time of a short block, and steps that remain; assumed.
_SLOW_NS, _MIN_BLOCK_NS, _FEW_STEPS = 2e9, 40e6, 200
# Rounds of a comparison, and with the time that is left in the end.
_MAX_ROUNDS, MAX_ROUNDS_AT_END = 10, 60
# What looks this much faster is measured until it is decided, before others are tried.
PROMISING, _MAX_PROMISING_ROUNDS = 1.05, 200
# More rounds than usual, up to these shares of the remaining time: of all variants if rounds are
# short, and of promising ones.
_ROUNDS_SHARE, _PROMISING_SHARE = 0.1, 0.4
# Where rounds of all variants would take more than this share of the remaining time, those that
# look no faster after a few are left out.
_ALL_ROUNDS_SHARE = 0.2
# Preparation ends when a step takes at most this many times the fastest before it.
_SETTLED_RATIO, _MAX_SETTLING_STEPS = 1.25, 6
# In a script of few steps, a variant prepared this quickly by another process gets one step.
_QUICK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Run `untimed` steps of this variant, then `timed` ones that are timed."""

    variant: Variant
    untimed: int
    timed: int
    preparing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Compare what this variant computes with what the program computes."""

    variant: Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResult:
    """The result of a block. `nothing_changed`: the fix has changed nothing; if there are times, a
    later step may still change something."""

    times_ns: Sequence[float] = ()
    peak_bytes: float | None = None
    failure: str | None = None
    nothing_changed: bool = False


Action = Block | Check
Reply = BlockResult | Numerics
Steps = Generator[Action, Reply, None]


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Measures variants in one process; `deadline` is when the measurement of fixes must end."""

    evidence: Evidence
    now: Callable[[], float]  # seconds
    deadline: Callable[[], float]
    random: random.Random
    accept_unverified: bool
    max_steps: int | None
    since_start_s: Callable[[], float]
    is_replaced: Callable[[Variant], bool] = lambda variant: False
    step_ns: dict[Variant, float] = field(default_factory=dict)
    quickest_ns: dict[Variant, float] = field(default_factory=dict)
    prepared: set[Variant] = field(default_factory=set)

    def usual_step_s(self, variant: Variant) -> float:
        """The fastest step of the variant or of the unchanged program; 0 if unknown.

        The fastest, since in the beginning most steps may be slow first uses of a shape.
        """
        quickest = [
            self.quickest_ns[known] for known in (variant, BASELINE) if known in self.quickest_ns
        ]
        return min(quickest, default=0.0) / 1e9

    def compare(
        self,
        variants: Sequence[Variant],
        against: Variant,
        *,
        most: int = _MAX_ROUNDS,
        patience: float = _PROMISING_SHARE,
    ) -> Steps:
        """Run rounds of all variants until each is decided, or until time or steps run out.

        After `most` rounds, only promising ones are measured further, for the share `patience` of
        the time that is left.
        """
        undecided = [variant for variant in variants if self.is_open(variant, against, most)]
        for variant in (against, *undecided):
            if not self.is_out_of_time():
                yield from self.prepare(variant)
        left_s = max(0.0, self.deadline() - self.now())
        if undecided:
            affordable = int(_ROUNDS_SHARE * left_s / (self.round_s(undecided, against) or 1.0))
            most = max(most, min(MAX_ROUNDS_AT_END, affordable))
        patient_until = self.now() + patience * left_s
        while not self.is_out_of_time():
            is_patient = self.now() < patient_until
            undecided = [
                variant
                for variant in undecided
                if self.is_open(variant, against, most, is_patient=is_patient)
            ]
            if self._has_little_time(undecided, against, most):
                undecided = [
                    variant for variant in undecided if not self._looks_useless(variant, against)
                ]
            if not undecided:
                break
            for group in self._groups(undecided):
                if not self.is_out_of_time(self.round_s(group, against)):
                    yield from self._round(group, against)
                elif len(group) > 1 and not self.is_out_of_time(self.round_s(group[:1], against)):
                    yield from self._round(group[:1], against)
                else:
                    return
            for variant in undecided:
                yield from self._check_if_faster(variant, against)

    def _has_little_time(self, variants: Sequence[Variant], against: Variant, most: int) -> bool:
        """Whether rounds of all of them would take too much of the remaining time."""
        left_s = self.deadline() - self.now()
        return most * self.round_s(variants, against) > _ALL_ROUNDS_SHARE * left_s

    def _looks_useless(self, variant: Variant, against: Variant) -> bool:
        comparison = self.evidence.comparison_of(variant, against)
        return len(comparison.log_ratios) >= MIN_ROUNDS and comparison.middle <= 1

    def is_open(
        self, variant: Variant, against: Variant, most: int, *, is_patient: bool = True
    ) -> bool:
        """Whether more rounds are wanted; `is_patient`: of a promising one as many as it takes."""
        comparison = self.evidence.comparison_of(variant, against)
        is_ruled = variant in self.evidence.rulings
        if comparison.decision == "faster":
            return not is_ruled and variant not in self.evidence.checked
        if self.is_replaced(variant):
            return False
        if comparison.middle > PROMISING:
            most = max(most, _MAX_PROMISING_ROUNDS if is_patient else _MAX_ROUNDS)
        return comparison.decision == "open" and not is_ruled and len(comparison.log_ratios) < most

    def _groups(self, variants: Sequence[Variant]) -> list[Sequence[Variant]]:
        """The variants of each round: all, unless the script is too short for that."""
        if self.max_steps is None:
            return [variants]
        block_steps = UNTIMED_STEPS + self.timed_steps(BASELINE)
        fitting = max(1, (self.max_steps - 6) // block_steps - 1)
        # The ones with fewest rounds first: each process of the script has time for some.
        return [variants[at : at + fitting] for at in range(0, len(variants), fitting)]

    def prepare(self, variant: Variant) -> Steps:
        """Run its first steps, which compile, tune and fill caches, until they are fast."""
        if variant in self.prepared or variant in self.evidence.rulings:
            return
        self.prepared.add(variant)
        times: list[float] = []
        known_s = self.evidence.preparation_s.get(variant, math.inf)
        is_quick = self.max_steps is not None and known_s < _QUICK_S
        while len(times) < (1 if is_quick else _MAX_SETTLING_STEPS):
            result = yield Block(variant=variant, untimed=0, timed=1, preparing=True)
            assert isinstance(result, BlockResult)
            # Some fixes change nothing before they have seen a call.
            is_first = not times and result.nothing_changed and bool(result.times_ns)
            if not is_first and self.is_settled(variant, result):
                return
            times += result.times_ns
            if is_first:
                continue
            if len(times) > 2 and times[-1] <= _SETTLED_RATIO * min(times[:-1]):
                break
        quickest = min(times)
        self.step_ns[variant] = self.quickest_ns[variant] = quickest
        if not is_quick:
            spent = sum(times) - quickest * len(times)
            self.evidence.preparation_s[variant] = spent / 1e9
        if variant == BASELINE:
            self.evidence.step_ns = quickest

    def _round(self, variants: Sequence[Variant], against: Variant) -> Steps:
        bases = max(1, len(variants) // 2)
        blocks = [*variants, *[against] * bases]
        self.random.shuffle(blocks)
        before: list[float] = []
        after: dict[Variant, float] = {}
        peaks: dict[Variant, float | None] = {}
        for variant in blocks:
            if variant in self.evidence.rulings:
                continue
            result = yield Block(
                variant=variant, untimed=UNTIMED_STEPS, timed=self.timed_steps(variant)
            )
            assert isinstance(result, BlockResult)
            if self.is_settled(variant, result):
                continue
            middle = statistics.median(result.times_ns)
            self.step_ns[variant] = middle
            quickest = min(result.times_ns)
            self.quickest_ns[variant] = min(quickest, self.quickest_ns.get(variant, quickest))
            peaks[variant] = result.peak_bytes
            if variant == against:
                before.append(middle)
            else:
                after[variant] = middle
        if not before:
            return
        base = statistics.fmean(map(math.log, before))
        for variant, ns in after.items():
            comparison = self.evidence.comparison_of(variant, against)
            comparison.log_ratios.append(base - math.log(ns))
            comparison.before_ns.append(math.exp(base))
            comparison.after_ns.append(ns)
            comparison.peak_bytes_before = _larger(comparison.peak_bytes_before, peaks.get(against))
            comparison.peak_bytes_after = _larger(comparison.peak_bytes_after, peaks.get(variant))

    def is_settled(self, variant: Variant, result: BlockResult) -> bool:
        """Whether nothing more is to be measured of it."""
        if result.failure is not None:
            self.evidence.rulings[variant] = Ruling(outcome=Outcome.FAILED, why=result.failure)
        elif result.nothing_changed:
            why = "there is nothing for it to change in this program"
            self.evidence.rulings[variant] = Ruling(outcome=Outcome.SKIPPED, why=why)
        else:
            return not result.times_ns
        return True

    def _check_if_faster(self, variant: Variant, against: Variant) -> Steps:
        evidence, name = self.evidence, variant
        comparison = evidence.comparison_of(variant, against)
        if comparison.decision != "faster" or name in evidence.rulings or name in evidence.checked:
            return
        numerics = yield Check(variant=variant)
        assert isinstance(numerics, Numerics)
        evidence.checked[name] = numerics
        if not numerics.ok and (numerics.verified or not self.accept_unverified):
            evidence.rulings[name] = Ruling(outcome=numerics.outcome, why=numerics.why)
            return
        if evidence.first_kept_s is None:
            evidence.first_kept_s = self.since_start_s()
        # Kept even if the measurement ends now.
        if not evidence.chosen:
            evidence.chosen = variant

    def is_confirmed(self, variant: Variant, against: Variant) -> bool:
        comparison, key = self.evidence.comparison_of(variant, against), variant
        is_checked = key in self.evidence.checked
        return comparison.decision == "faster" and is_checked and key not in self.evidence.rulings

    def is_out_of_time(self, more_s: float = 0.0) -> bool:
        return self.now() + more_s > self.deadline()

    def timed_steps(self, variant: Variant) -> int:
        step_ns = self.step_ns.get(variant) or self.step_ns.get(BASELINE) or 1e8
        if step_ns > _SLOW_NS or (self.max_steps is not None and self.max_steps < _FEW_STEPS):
            return _MIN_TIMED_STEPS
        if self.max_steps is not None:
            return _TIMED_STEPS
        return max(_TIMED_STEPS, min(_MAX_TIMED_STEPS, math.ceil(_MIN_BLOCK_NS / step_ns)))

    def _block_s(self, variant: Variant) -> float:
        step_ns = self.step_ns.get(variant) or self.step_ns.get(BASELINE) or 0.0
        return (UNTIMED_STEPS + self.timed_steps(variant)) * step_ns / 1e9

    def round_s(self, variants: Sequence[Variant], against: Variant) -> float:
        bases = max(1, len(variants) // 2)
        return sum(map(self._block_s, variants)) + bases * self._block_s(against)


def _larger(first: float | None, second: float | None) -> float | None:
    values = [value for value in (first, second) if value is not None]
    return max(values, default=None)
