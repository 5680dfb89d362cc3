"""Chooses which variant runs next: single fixes, then combinations, until intervals decide.

`Search.run` is a generator: it yields what to do (`Block`, `Check`) and is sent the result.
It knows no torch and no clock but the one it is given, so that decisions are tested on simulated
programs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from boundby.model.proof import Numerics, Outcome
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import (
    BASELINE,
    Comparison,
    Evidence,
    Ruling,
    Variant,
    keys_in,
    variant_name,
)

# The first step of a block is not timed: after a switch the pipeline refills.
_UNTIMED_STEPS = 1
# Timed steps of a block: four, fewer if they are slow, more if they are short.
_TIMED_STEPS, _MIN_TIMED_STEPS, _MAX_TIMED_STEPS = 4, 2, 50
_SLOW_NS, _MIN_BLOCK_NS = 2e9, 40e6
# Rounds of a fix alone, then in combination, then with the time that is left.
_FIRST_ROUNDS, _MAX_ROUNDS, _MAX_ROUNDS_AT_END = 5, 10, 60
# More rounds if they are short, up to this share of the remaining time.
_ROUNDS_SHARE = 0.1
# Preparation ends when a step takes at most this many times the fastest before it.
_SETTLED_RATIO, _MAX_SETTLING_STEPS = 1.25, 6
# In a script of few steps, a variant prepared this quickly by another process gets one step.
_QUICK_S = 0.5
# Steps to screen one fix: its preparation, and three rounds with their baselines.
_SCREENING_STEPS, _SCREENING_SHARE = 25, 0.5
# The share of time for fixes without a finding, before fixes that compile.
_WITHOUT_FINDING_SHARE, _FAR_SLOWER = 0.25, 2.0
# A fix may gain in combination what it did not gain alone, unless it was slower than this.
_HARMLESS, _PREDICTED_GAIN = 0.97, 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Run so many steps of this variant; the first `untimed` are not timed."""

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
    """The result of a block. `nothing_changed` with times: none so far; a later step may."""

    times_ns: Sequence[float] = ()
    peak_bytes: float | None = None
    failure: str | None = None
    nothing_changed: bool = False


Request = Block | Check
Reply = BlockResult | Numerics
Steps = Generator[Request, Reply, None]


@dataclass(slots=True, kw_only=True)
class Search:
    """The search in one process; results of earlier processes are not measured again."""

    candidates: Sequence[Candidate]
    evidence: Evidence
    now: Callable[[], float]  # seconds
    ends_at: float
    # Reserved for later processes: fixes of the start, and the final check of chosen fixes.
    reserved_s: float = 0.0
    start_gain: float = 1.0  # predicted for the best fix of the start
    final_check_s: Callable[[float], float] = lambda step_s: 0.0
    random: random.Random = field(default_factory=lambda: random.Random(0))
    accept_unverified: bool = False
    max_steps: int | None = None  # of the script, if it is known to be short
    since_start_s: Callable[[], float] = lambda: 0.0
    _step_ns: dict[Variant, float] = field(default_factory=dict)
    _prepared: set[Variant] = field(default_factory=set)
    _uses_reserve: bool = False  # now, of the fixes of the start

    def run(self) -> Steps:
        yield from self._prepare(BASELINE)
        singles = [one for one in self.candidates if not one.preparation_s]
        expensive = [one for one in self.candidates if one.preparation_s]
        yield from self._compare_singles([one for one in singles if not one.without_finding])
        # Fixes without a finding leave most of the time to those with one.
        without_finding = [one for one in singles if one.without_finding]
        has_expensive = any(not one.without_finding for one in expensive)
        early = (
            without_finding[: self._screened_count(_WITHOUT_FINDING_SHARE)]
            if has_expensive
            else without_finding
        )
        yield from self._compare_without_finding(early)
        yield from self._extend_combination(singles)
        gained = False
        for one in expensive:
            before = self.evidence.chosen
            self._uses_reserve = one.predicted is None or one.predicted.expected >= self.start_gain
            yield from self._add_expensive(one)
            gained |= self.evidence.chosen != before
        self._uses_reserve = False
        yield from self._compare_without_finding(without_finding[len(early) :])
        if gained or len(early) < len(without_finding):
            yield from self._extend_combination(singles, in_combination=True)
        yield from self._decide_open()
        self.evidence.out_of_time = self._is_out_of_time()
        self.evidence.done = not self.evidence.out_of_time

    def timed(self, variant: Variant, steps: int) -> Steps:
        """One variant alone, in a process of its own, without the fixes that cannot be applied."""
        yield from self._prepare(variant)
        if variant_name(variant) in self.evidence.rulings:
            variant = yield from self._without_failing_fixes(variant)
            yield from self._prepare(variant)
        result = yield Block(
            variant=variant, untimed=_UNTIMED_STEPS, timed=max(steps, self._timed_steps(variant))
        )
        assert isinstance(result, BlockResult)
        if not self._is_settled(variant, result):
            self.evidence.timed_ns = list(result.times_ns)
            self.evidence.timed_peak_bytes = result.peak_bytes
        self.evidence.done = True

    def _without_failing_fixes(self, variant: Variant) -> Generator[Request, Reply, Variant]:
        """The fixes of a variant that can be applied, tried one by one."""
        ruled = self.evidence.rulings
        applied: Variant = BASELINE
        for key in variant:
            added = (*applied, key)
            yield from self._prepare(added)
            if variant_name(added) in ruled:
                self.evidence.left_out[key] = ruled[variant_name(added)].why
            else:
                applied = added
        return applied

    def usual_step_s(self, variant: Variant) -> float:
        """A step of the variant, or of the unchanged program if that is faster; 0 if unknown."""
        known = [self._step_ns[one] for one in (variant, BASELINE) if one in self._step_ns]
        return min(known, default=0.0) / 1e9

    # What comes next.

    def _batches(self, singles: Sequence[Candidate]) -> list[Sequence[Candidate]]:
        """Groups of fixes to compare together: one group, unless its rounds take too long."""
        at_once = max(1, self._screened_count(_SCREENING_SHARE))
        return [singles[at : at + at_once] for at in range(0, len(singles), at_once)]

    def _screened_count(self, share: float) -> int:
        """How many fixes can be screened in this share of the remaining time."""
        a_fix_s = _SCREENING_STEPS * (self._step_ns.get(BASELINE) or 0.0) / 1e9
        left_s = max(0.0, self.deadline - self.now())
        return int(share * left_s / a_fix_s) if a_fix_s else len(self.candidates)

    def _compare_singles(self, fixes: Sequence[Candidate]) -> Steps:
        """A few rounds of each fix alone, the first of the sequence first."""
        singles = [one for one in self.candidates if not one.preparation_s]
        for some in self._batches(fixes):
            yield from self._compare([(one.key,) for one in some], BASELINE, most=_FIRST_ROUNDS)
            self._choose_best_single(singles)

    def _compare_without_finding(self, without_finding: Sequence[Candidate]) -> Steps:
        """Compare fixes without a finding, those with the fastest first steps first.

        Their first steps are all there is to rank them by. Far slower ones are left out.
        """
        speed: dict[str, float] = {}
        for one in without_finding:
            if not self._is_out_of_time():
                yield from self._prepare((one.key,))
            step_ns, base_ns = self._step_ns.get((one.key,)), self._step_ns.get(BASELINE)
            if not step_ns or not base_ns:
                continue
            speed[one.key] = base_ns / step_ns
            if speed[one.key] * _FAR_SLOWER < 1:
                why = f"its first steps took {1 / speed[one.key]:.1f} times as long"
                self.evidence.rulings.setdefault(one.key, Ruling(outcome=Outcome.NO_GAIN, why=why))
        yield from self._compare_singles(
            sorted(without_finding, key=lambda one: -speed.get(one.key, 0.0))
        )

    def _choose_best_single(self, singles: Sequence[Candidate]) -> None:
        evidence = self.evidence
        kept = [one for one in singles if self._is_confirmed((one.key,), BASELINE)]
        if kept and len(evidence.chosen) < 2:
            best = max(kept, key=lambda one: evidence.comparison_of((one.key,), BASELINE).middle)
            evidence.chosen = (best.key,)

    def _extend_combination(
        self, pool: Sequence[Candidate], *, in_combination: bool = False
    ) -> Steps:
        """Add fixes to the chosen ones while one of them helps, the best first."""
        while not self._is_out_of_time():
            chosen = self.evidence.chosen
            if not chosen:
                return
            variants = [
                (*chosen, one.key)
                for one in pool
                if self._may_be_added(one, chosen, in_combination=in_combination)
            ]
            variants = [
                variant
                for variant in variants
                if variant_name(variant) not in self.evidence.rulings
            ]
            if not variants:
                return
            yield from self._compare(variants, chosen)
            if not self._choose_best(variants, chosen):
                return

    def _add_expensive(self, one: Candidate) -> Steps:
        """Measure a fix that is expensive to prepare together with the chosen ones."""
        chosen = self.evidence.chosen
        if one.key in chosen:
            return
        combination = tuple(
            key for key in chosen if not one.is_alternative_to(self._candidate_of(key))
        )
        if not one.is_compatible_with([self._candidate_of(key) for key in combination]):
            combination = BASELINE
        variant = (*combination, one.key)
        if self._skip_if_too_long(one, variant, chosen):
            return
        yield from self._compare([variant], chosen)
        self._choose_best([variant], chosen)

    def _decide_open(self) -> Steps:
        """Use the remaining time for undecided fixes that look faster."""
        while not self._is_out_of_time():
            chosen = self.evidence.chosen
            variants = []
            for one in self.candidates:
                variant = (*chosen, one.key)
                last = self.evidence.comparison_of(variant, chosen)
                if (
                    one.key not in chosen
                    and last.log_ratios
                    and last.decision == "open"
                    and last.middle > 1
                    and len(last.log_ratios) < _MAX_ROUNDS_AT_END
                    and variant_name(variant) not in self.evidence.rulings
                ):
                    variants.append(variant)
            if not variants:
                return
            yield from self._compare(variants, chosen, most=_MAX_ROUNDS_AT_END)
            if not self._choose_best(variants, chosen) and not self._is_out_of_time():
                return

    def _choose_best(self, variants: Sequence[Variant], against: Variant) -> bool:
        better = [variant for variant in variants if self._is_confirmed(variant, against)]
        if not better:
            return False
        self.evidence.chosen = max(
            better, key=lambda variant: self.evidence.comparison_of(variant, against).middle
        )
        return True

    def _may_be_added(self, one: Candidate, chosen: Variant, *, in_combination: bool) -> bool:
        if one.key in chosen or not one.is_compatible_with(
            [self._candidate_of(key) for key in chosen]
        ):
            return False
        if self.evidence.comparison_of((*chosen, one.key), chosen).decision == "no gain":
            return False
        alone = self.evidence.comparison_of((one.key,), BASELINE)
        if (one.key,) != chosen and variant_name((one.key,)) in self.evidence.rulings:
            return False
        if not alone.log_ratios:
            return False
        if alone.decision == "faster" or (alone.decision == "open" and alone.middle > 1):
            return True
        is_predicted = one.predicted is not None and one.predicted.expected > _PREDICTED_GAIN
        return in_combination and is_predicted and alone.middle > _HARMLESS

    # Measuring.

    def _compare(
        self, variants: Sequence[Variant], against: Variant, *, most: int = _MAX_ROUNDS
    ) -> Steps:
        """Run rounds of all variants until each is decided, or no time or step is left."""
        left = [variant for variant in variants if self._is_open(variant, against, most)]
        for variant in (against, *left):
            if not self._is_out_of_time():
                yield from self._prepare(variant)
        if left and not self._is_out_of_time():
            left_s = self.deadline - self.now()
            affordable = int(_ROUNDS_SHARE * left_s / (self._round_s(left, against) or 1.0))
            most = max(most, min(_MAX_ROUNDS_AT_END, affordable))
        while not self._is_out_of_time():
            left = [variant for variant in left if self._is_open(variant, against, most)]
            if not left:
                break
            for group in self._groups(left):
                if not self._is_out_of_time(self._round_s(group, against)):
                    yield from self._round(group, against)
                elif len(group) > 1 and not self._is_out_of_time(self._round_s(group[:1], against)):
                    yield from self._round(group[:1], against)
                else:
                    return
            for variant in left:
                yield from self._check_if_faster(variant, against)

    def _is_open(self, variant: Variant, against: Variant, most: int) -> bool:
        found = self.evidence.comparison_of(variant, against)
        is_ruled = variant_name(variant) in self.evidence.rulings
        if found.decision == "faster":
            return not is_ruled and variant_name(variant) not in self.evidence.checked
        return found.decision == "open" and not is_ruled and len(found.log_ratios) < most

    def _groups(self, variants: Sequence[Variant]) -> list[Sequence[Variant]]:
        """The variants of each round: all, unless the script is too short for that."""
        if self.max_steps is None:
            return [variants]
        block_steps = _UNTIMED_STEPS + self._timed_steps(BASELINE)
        fitting = max(1, (self.max_steps - 6) // block_steps - 1)
        # The ones with fewest rounds first: each process of the script has time for some.
        return [variants[at : at + fitting] for at in range(0, len(variants), fitting)]

    def _prepare(self, variant: Variant) -> Steps:
        """Run its first steps, which compile, tune and fill caches, until they are fast."""
        if variant in self._prepared or variant_name(variant) in self.evidence.rulings:
            return
        self._prepared.add(variant)
        times: list[float] = []
        known_s = self.evidence.preparation_s.get(variant_name(variant), math.inf)
        is_quick = self.max_steps is not None and known_s < _QUICK_S
        while len(times) < (1 if is_quick else _MAX_SETTLING_STEPS):
            result = yield Block(variant=variant, untimed=0, timed=1, preparing=True)
            assert isinstance(result, BlockResult)
            # Some fixes change nothing before they have seen a call.
            is_first = not times and result.nothing_changed and bool(result.times_ns)
            if not is_first and self._is_settled(variant, result):
                return
            times += result.times_ns
            if is_first:
                continue
            if len(times) > 2 and times[-1] <= _SETTLED_RATIO * min(times[:-1]):
                break
        quickest = min(times)
        self._step_ns[variant] = quickest
        if not is_quick:
            spent = sum(times) - quickest * len(times)
            self.evidence.preparation_s[variant_name(variant)] = spent / 1e9
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
            if variant_name(variant) in self.evidence.rulings:
                continue
            result = yield Block(
                variant=variant, untimed=_UNTIMED_STEPS, timed=self._timed_steps(variant)
            )
            assert isinstance(result, BlockResult)
            if self._is_settled(variant, result):
                continue
            middle = statistics.median(result.times_ns)
            self._step_ns[variant] = middle
            peaks[variant] = result.peak_bytes
            if variant == against:
                before.append(middle)
            else:
                after[variant] = middle
        if not before:
            return
        base = statistics.fmean(map(math.log, before))
        for variant, ns in after.items():
            found = self.evidence.comparison_of(variant, against)
            found.log_ratios.append(base - math.log(ns))
            found.before_ns.append(math.exp(base))
            found.after_ns.append(ns)
            found.peak_bytes_before = _larger(found.peak_bytes_before, peaks.get(against))
            found.peak_bytes_after = _larger(found.peak_bytes_after, peaks.get(variant))

    def _is_settled(self, variant: Variant, result: BlockResult) -> bool:
        """Whether nothing more is to be measured of it."""
        if result.failure is not None:
            self.evidence.rulings[variant_name(variant)] = Ruling(
                outcome=Outcome.FAILED, why=result.failure
            )
        elif result.nothing_changed:
            why = "there is nothing for it to change in this program"
            self.evidence.rulings[variant_name(variant)] = Ruling(outcome=Outcome.SKIPPED, why=why)
        else:
            return not result.times_ns
        return True

    def _check_if_faster(self, variant: Variant, against: Variant) -> Steps:
        evidence, name = self.evidence, variant_name(variant)
        found = evidence.comparison_of(variant, against)
        if found.decision != "faster" or name in evidence.rulings or name in evidence.checked:
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

    def _is_confirmed(self, variant: Variant, against: Variant) -> bool:
        found, name = self.evidence.comparison_of(variant, against), variant_name(variant)
        is_checked = name in self.evidence.checked
        return found.decision == "faster" and is_checked and name not in self.evidence.rulings

    # Time.

    @property
    def deadline(self) -> float:
        step_s = (self._step_ns.get(BASELINE) or 0.0) / 1e9
        chosen_s = self.final_check_s(step_s) if self.evidence.chosen else 0.0
        starts_s = 0.0 if self._uses_reserve else self.reserved_s
        return self.ends_at - starts_s - chosen_s

    def _is_out_of_time(self, more_s: float = 0.0) -> bool:
        return self.now() + more_s > self.deadline

    def _timed_steps(self, variant: Variant) -> int:
        step_ns = self._step_ns.get(variant) or self._step_ns.get(BASELINE) or 1e8
        if step_ns > _SLOW_NS:
            return _MIN_TIMED_STEPS
        if self.max_steps is not None:
            return _TIMED_STEPS
        return max(_TIMED_STEPS, min(_MAX_TIMED_STEPS, math.ceil(_MIN_BLOCK_NS / step_ns)))

    def _block_s(self, variant: Variant) -> float:
        step_ns = self._step_ns.get(variant) or self._step_ns.get(BASELINE) or 0.0
        return (_UNTIMED_STEPS + self._timed_steps(variant)) * step_ns / 1e9

    def _round_s(self, variants: Sequence[Variant], against: Variant) -> float:
        bases = max(1, len(variants) // 2)
        return sum(map(self._block_s, variants)) + bases * self._block_s(against)

    def _skip_if_too_long(self, one: Candidate, variant: Variant, against: Variant) -> bool:
        """Skip a variant whose preparation would leave no time to measure it."""
        if variant in self._prepared or variant_name(variant) in self.evidence.rulings:
            return False
        expected, left = self._expected_s(one), self.deadline - self.now()
        needed = 3 * self._round_s([variant], against)
        if expected + needed < left:
            return False
        if self.evidence.comparison_of(variant, against).log_ratios:
            return True  # measured in an earlier process of the script: what is known stays
        why = f"its first use is expected to take {expected:.0f} s, of {max(left, 0):.0f} s left"
        self.evidence.rulings[variant_name(variant)] = Ruling(outcome=Outcome.SKIPPED, why=why)
        return True

    def _expected_s(self, one: Candidate) -> float:
        """The declared preparation time, scaled by how long another preparation took."""
        scale = 1.0
        for name, seconds in self.evidence.preparation_s.items():
            keys = keys_in(name)
            seen = [other for other in self.candidates if other.key in keys and other.preparation_s]
            if seen:
                scale = seconds / max(other.preparation_s for other in seen)
        return one.preparation_s * scale

    def _candidate_of(self, key: str) -> Candidate:
        return next(one for one in self.candidates if one.key == key)


def _larger(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)


def comparisons_of(evidence: Evidence, key: str) -> list[Comparison]:
    """Comparisons of this fix with what it was added to."""
    return [
        one
        for one in evidence.comparisons
        if one.log_ratios and one.variant and one.variant[-1] == key and key not in one.against
    ]
