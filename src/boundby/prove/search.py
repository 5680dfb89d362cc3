"""Which variant is run next: singles, then combinations, until the intervals decide.

`Search.run` is a generator: it yields what to do (`Block`, `Check`) and is sent what came of it.
It knows no torch and no clock but the one it is given, so that decisions are tested on simulated
programs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from boundby.model.diagnosis import Numerics, Outcome
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import BASELINE, Arm, Comparison, Evidence, Ruled, arm_name

# A block drops its first step: after a switch the pipeline refills.
_DROPPED = 1
# Kept steps of a block: four, fewer of slow ones, more of those that are over at once.
_KEPT, _FEWEST_KEPT, _MOST_KEPT = 4, 2, 50
_SLOW_NS, _LEAST_BLOCK_NS = 2e9, 40e6
_MOST_ROUNDS, _MOST_ROUNDS_AT_END = 10, 60
# Rounds that take hardly any time may be more, up to this share of the time that is left.
_ROUNDS_SHARE = 0.1
# A first use is over when a step is within this of the quickest before it.
_SETTLED, _MOST_SETTLING = 1.25, 6
# Where steps are few, a first use that took no longer than this in another process gets one step.
_QUICK_S = 0.5
# A first look at a fix takes about so many steps: its first use, and three rounds with their bases.
_FIRST_LOOK_STEPS, _FIRST_LOOK_SHARE = 25, 0.5
# Fixes that no finding speaks for get so much of the time before those that compile.
_UNFOUNDED_SHARE, _FAR_SLOWER = 0.25, 2.0
# In company a fix may gain what it did not gain alone, unless it was slower than this.
_HARMLESS, _FORESEEN = 0.97, 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Run so many steps with this arm; the first `dropped` are not timed."""

    arm: Arm
    dropped: int
    kept: int
    preparing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Compare what this arm computes with what the program computes."""

    arm: Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What came of a block. `nothing_changed` with times: so far, which another step may change."""

    times_ns: Sequence[float] = ()
    peak_bytes: float | None = None
    failure: str | None = None
    nothing_changed: bool = False


Request = Block | Check
Reply = Ran | Numerics
Steps = Generator[Request, Reply, None]


@dataclass(slots=True, kw_only=True)
class Search:
    """The plan of one process; what is known already is not measured again."""

    candidates: Sequence[Candidate]
    evidence: Evidence
    now: Callable[[], float]  # seconds
    ends_at: float
    # Of it, for processes after this one: needed by those that measure what was chosen.
    reserved_s: float = 0.0
    reserved_if_chosen_s: float = 0.0
    random: random.Random = field(default_factory=lambda: random.Random(0))
    accept_unverified: bool = False
    most_steps: int | None = None  # of the script, if it is known to be short
    since_start_s: Callable[[], float] = lambda: 0.0
    _step_ns: dict[Arm, float] = field(default_factory=dict)
    _prepared: set[Arm] = field(default_factory=set)
    _is_preparing_dear: bool = False

    def run(self) -> Steps:
        yield from self._prepare(BASELINE)
        singles = [one for one in self.candidates if not one.preparation_s]
        dear = [one for one in self.candidates if one.preparation_s]
        for some in self._affordable([one for one in singles if not one.unfounded]):
            yield from self._compare([(one.key,) for one in some], BASELINE)
            self._choose_best_single(singles)
        # Those without a finding leave most of the time to what has one.
        unfounded = [one for one in singles if one.unfounded]
        has_dear = any(not one.unfounded for one in dear)
        early = unfounded[: self._first_looks(_UNFOUNDED_SHARE)] if has_dear else unfounded
        yield from self._look_at(early, singles)
        yield from self._grow(singles)
        gained = False
        self._is_preparing_dear = True
        for one in dear:
            before = self.evidence.chosen
            yield from self._add(one)
            gained |= self.evidence.chosen != before
        self._is_preparing_dear = False
        yield from self._look_at(unfounded[len(early) :], singles)
        if gained or len(early) < len(unfounded):
            yield from self._grow(singles, in_company=True)
        yield from self._decide_open_ones()
        self.evidence.out_of_time = self._is_late()
        self.evidence.done = not self.evidence.out_of_time

    def timed(self, arm: Arm, steps: int) -> Steps:
        """One arm alone, in a process of its own; what cannot be applied here is left out of it."""
        yield from self._prepare(arm)
        if arm_name(arm) in self.evidence.ruled:
            arm = yield from self._without_refused(arm)
            yield from self._prepare(arm)
        ran = yield Block(arm=arm, dropped=_DROPPED, kept=max(steps, self._kept(arm)))
        assert isinstance(ran, Ran)
        if not self._has_ended(arm, ran):
            self.evidence.timed_ns = list(ran.times_ns)
            self.evidence.timed_peak_bytes = ran.peak_bytes
        self.evidence.done = True

    def _without_refused(self, arm: Arm) -> Generator[Request, Reply, Arm]:
        """Of an arm that cannot be applied, what can; fixes are added one by one."""
        ruled = self.evidence.ruled
        applied: Arm = BASELINE
        for key in arm:
            added = (*applied, key)
            yield from self._prepare(added)
            if arm_name(added) in ruled:
                self.evidence.left_out[key] = ruled[arm_name(added)].why
            else:
                applied = added
        return applied

    # What comes next.

    def _affordable(self, singles: Sequence[Candidate]) -> list[Sequence[Candidate]]:
        """All in the same rounds, unless these would take most of the time: the likeliest first."""
        at_once = max(1, self._first_looks(_FIRST_LOOK_SHARE))
        return [singles[at : at + at_once] for at in range(0, len(singles), at_once)]

    def _first_looks(self, share: float) -> int:
        """How many fixes can be looked at in this share of the time that is left."""
        an_arm_s = _FIRST_LOOK_STEPS * (self._step_ns.get(BASELINE) or 0.0) / 1e9
        left_s = max(0.0, self.deadline - self.now())
        return int(share * left_s / an_arm_s) if an_arm_s else len(self.candidates)

    def _look_at(self, unfounded: Sequence[Candidate], singles: Sequence[Candidate]) -> Steps:
        """Those that no finding speaks for: what is far slower is not measured at all."""
        for one in unfounded:
            if not self._is_late():
                yield from self._prepare((one.key,))
            step_ns, base_ns = self._step_ns.get((one.key,)), self._step_ns.get(BASELINE)
            if step_ns and base_ns and step_ns > _FAR_SLOWER * base_ns:
                why = f"its first steps took {step_ns / base_ns:.1f} times as long"
                self.evidence.ruled.setdefault(one.key, Ruled(outcome=Outcome.NO_GAIN, why=why))
        for some in self._affordable(unfounded):
            yield from self._compare([(one.key,) for one in some], BASELINE)
        self._choose_best_single(singles)

    def _choose_best_single(self, singles: Sequence[Candidate]) -> None:
        evidence = self.evidence
        kept = [one for one in singles if self._holds((one.key,), BASELINE)]
        if kept and len(evidence.chosen) < 2:
            best = max(kept, key=lambda one: evidence.of((one.key,), BASELINE).middle)
            evidence.chosen = (best.key,)

    def _grow(self, pool: Sequence[Candidate], *, in_company: bool = False) -> Steps:
        """Add what helps beside what was chosen, the best first; leave out what does not."""
        while not self._is_late():
            chosen = self.evidence.chosen
            if not chosen:
                return
            arms = [
                (*chosen, one.key)
                for one in pool
                if self._may_join(one, chosen, in_company=in_company)
            ]
            arms = [arm for arm in arms if arm_name(arm) not in self.evidence.ruled]
            if not arms:
                return
            yield from self._compare(arms, chosen)
            if not self._take_best(arms, chosen):
                return

    def _add(self, one: Candidate) -> Steps:
        """One that is expensive to prepare: measured at once beside what was chosen."""
        chosen = self.evidence.chosen
        if one.key in chosen:
            return
        company = tuple(key for key in chosen if not one.is_rival(self._named(key)))
        if not one.goes_with([self._named(key) for key in company]):
            company = BASELINE
        arm = (*company, one.key)
        if self._skip_if_too_long(one, arm, chosen):
            return
        yield from self._compare([arm], chosen)
        self._take_best([arm], chosen)

    def _decide_open_ones(self) -> Steps:
        """Until the time is over: what is open and would be worth a change."""
        while not self._is_late():
            chosen = self.evidence.chosen
            arms = []
            for one in self.candidates:
                arm = (*chosen, one.key)
                last = self.evidence.of(arm, chosen)
                if (
                    one.key not in chosen
                    and last.log_ratios
                    and last.verdict == "open"
                    and last.middle > 1
                    and len(last.log_ratios) < _MOST_ROUNDS_AT_END
                    and arm_name(arm) not in self.evidence.ruled
                ):
                    arms.append(arm)
            if not arms:
                return
            yield from self._compare(arms, chosen, most=_MOST_ROUNDS_AT_END)
            if not self._take_best(arms, chosen) and not self._is_late():
                return

    def _take_best(self, arms: Sequence[Arm], against: Arm) -> bool:
        better = [arm for arm in arms if self._holds(arm, against)]
        if not better:
            return False
        self.evidence.chosen = max(better, key=lambda arm: self.evidence.of(arm, against).middle)
        return True

    def _may_join(self, one: Candidate, chosen: Arm, *, in_company: bool) -> bool:
        if one.key in chosen or not one.goes_with([self._named(key) for key in chosen]):
            return False
        if self.evidence.of((*chosen, one.key), chosen).verdict == "no gain":
            return False
        alone = self.evidence.of((one.key,), BASELINE)
        if (one.key,) != chosen and arm_name((one.key,)) in self.evidence.ruled:
            return False
        if not alone.log_ratios:
            return False
        if alone.verdict == "faster" or (alone.verdict == "open" and alone.middle > 1):
            return True
        foreseen = one.predicted is not None and one.predicted.expected > _FORESEEN
        return in_company and foreseen and alone.middle > _HARMLESS

    # Measuring.

    def _compare(self, arms: Sequence[Arm], against: Arm, *, most: int = _MOST_ROUNDS) -> Steps:
        """Rounds of all arms in turn, until each is decided, or there is no time or step left."""
        left = [arm for arm in arms if self._is_open(arm, against, most)]
        for arm in (against, *left):
            if not self._is_late():
                yield from self._prepare(arm)
        if left and not self._is_late():
            left_s = self.deadline - self.now()
            affordable = int(_ROUNDS_SHARE * left_s / (self._round_s(left, against) or 1.0))
            most = max(most, min(_MOST_ROUNDS_AT_END, affordable))
        while not self._is_late():
            left = [arm for arm in left if self._is_open(arm, against, most)]
            if not left:
                break
            for group in self._groups(left):
                if not self._is_late(self._round_s(group, against)):
                    yield from self._round(group, against)
                elif len(group) > 1 and not self._is_late(self._round_s(group[:1], against)):
                    yield from self._round(group[:1], against)
                else:
                    return
            for arm in left:
                yield from self._check_if_faster(arm, against)

    def _is_open(self, arm: Arm, against: Arm, most: int) -> bool:
        found = self.evidence.of(arm, against)
        is_ruled = arm_name(arm) in self.evidence.ruled
        if found.verdict == "faster":
            return not is_ruled and arm_name(arm) not in self.evidence.checked
        return found.verdict == "open" and not is_ruled and len(found.log_ratios) < most

    def _groups(self, arms: Sequence[Arm]) -> list[Sequence[Arm]]:
        """All in one round, unless the script is too short for that."""
        if self.most_steps is None:
            return [arms]
        a_block = _DROPPED + self._kept(BASELINE)
        fitting = max(1, (self.most_steps - 6) // a_block - 1)
        # The ones with fewest rounds first: each process of the script has time for some.
        return [arms[at : at + fitting] for at in range(0, len(arms), fitting)]

    def _prepare(self, arm: Arm) -> Steps:
        """Its first steps, which compile, tune and fill caches, until they are quick."""
        if arm in self._prepared or arm_name(arm) in self.evidence.ruled:
            return
        self._prepared.add(arm)
        times: list[float] = []
        known_s = self.evidence.preparation_s.get(arm_name(arm), math.inf)
        is_quick = self.most_steps is not None and known_s < _QUICK_S
        while len(times) < (1 if is_quick else _MOST_SETTLING):
            ran = yield Block(arm=arm, dropped=0, kept=1, preparing=True)
            assert isinstance(ran, Ran)
            # Some fixes change nothing before they have seen a call.
            is_first = not times and ran.nothing_changed and bool(ran.times_ns)
            if not is_first and self._has_ended(arm, ran):
                return
            times += ran.times_ns
            if is_first:
                continue
            if len(times) > 2 and times[-1] <= _SETTLED * min(times[:-1]):
                break
        quickest = min(times)
        self._step_ns[arm] = quickest
        if not is_quick:
            spent = sum(times) - quickest * len(times)
            self.evidence.preparation_s[arm_name(arm)] = spent / 1e9
        if arm == BASELINE:
            self.evidence.step_ns = quickest

    def _round(self, arms: Sequence[Arm], against: Arm) -> Steps:
        bases = max(1, len(arms) // 2)
        blocks = [*arms, *[against] * bases]
        self.random.shuffle(blocks)
        before: list[float] = []
        after: dict[Arm, float] = {}
        peaks: dict[Arm, float | None] = {}
        for arm in blocks:
            if arm_name(arm) in self.evidence.ruled:
                continue
            ran = yield Block(arm=arm, dropped=_DROPPED, kept=self._kept(arm))
            assert isinstance(ran, Ran)
            if self._has_ended(arm, ran):
                continue
            middle = statistics.median(ran.times_ns)
            self._step_ns[arm] = middle
            peaks[arm] = ran.peak_bytes
            if arm == against:
                before.append(middle)
            else:
                after[arm] = middle
        if not before:
            return
        base = statistics.fmean(map(math.log, before))
        for arm, ns in after.items():
            found = self.evidence.of(arm, against)
            found.log_ratios.append(base - math.log(ns))
            found.before_ns.append(math.exp(base))
            found.after_ns.append(ns)
            found.peak_bytes_before = _larger(found.peak_bytes_before, peaks.get(against))
            found.peak_bytes_after = _larger(found.peak_bytes_after, peaks.get(arm))

    def _has_ended(self, arm: Arm, ran: Ran) -> bool:
        """Whether nothing more is to be measured of it."""
        if ran.failure is not None:
            self.evidence.ruled[arm_name(arm)] = Ruled(outcome=Outcome.FAILED, why=ran.failure)
        elif ran.nothing_changed:
            why = "there is nothing for it to change in this program"
            self.evidence.ruled[arm_name(arm)] = Ruled(outcome=Outcome.SKIPPED, why=why)
        else:
            return not ran.times_ns
        return True

    def _check_if_faster(self, arm: Arm, against: Arm) -> Steps:
        evidence, name = self.evidence, arm_name(arm)
        found = evidence.of(arm, against)
        if found.verdict != "faster" or name in evidence.ruled or name in evidence.checked:
            return
        numerics = yield Check(arm=arm)
        assert isinstance(numerics, Numerics)
        evidence.checked[name] = numerics
        if not numerics.ok and (numerics.verified or not self.accept_unverified):
            evidence.ruled[name] = Ruled(outcome=numerics.outcome, why=numerics.why)
            return
        if evidence.first_kept_s is None:
            evidence.first_kept_s = self.since_start_s()
        # Whatever ends the measurement now, this much was proven.
        if not evidence.chosen:
            evidence.chosen = arm

    def _holds(self, arm: Arm, against: Arm) -> bool:
        found, name = self.evidence.of(arm, against), arm_name(arm)
        is_checked = name in self.evidence.checked
        return found.verdict == "faster" and is_checked and name not in self.evidence.ruled

    # Time.

    @property
    def deadline(self) -> float:
        chosen_s = self.reserved_if_chosen_s if self.evidence.chosen else 0.0
        # What compiles is likelier to be worth the time than a process for a fix of the start.
        starts_s = 0.0 if self._is_preparing_dear else self.reserved_s
        return self.ends_at - starts_s - chosen_s

    def _is_late(self, more_s: float = 0.0) -> bool:
        return self.now() + more_s > self.deadline

    def _kept(self, arm: Arm) -> int:
        step_ns = self._step_ns.get(arm) or self._step_ns.get(BASELINE) or 1e8
        if step_ns > _SLOW_NS:
            return _FEWEST_KEPT
        if self.most_steps is not None:
            return _KEPT
        return max(_KEPT, min(_MOST_KEPT, math.ceil(_LEAST_BLOCK_NS / step_ns)))

    def _block_s(self, arm: Arm) -> float:
        step_ns = self._step_ns.get(arm) or self._step_ns.get(BASELINE) or 0.0
        return (_DROPPED + self._kept(arm)) * step_ns / 1e9

    def _round_s(self, arms: Sequence[Arm], against: Arm) -> float:
        bases = max(1, len(arms) // 2)
        return sum(map(self._block_s, arms)) + bases * self._block_s(against)

    def _skip_if_too_long(self, one: Candidate, arm: Arm, against: Arm) -> bool:
        """Whether its first use leaves no time to measure it; told by the first one seen."""
        if arm in self._prepared or arm_name(arm) in self.evidence.ruled:
            return False
        expected, left = self._expected_s(one), self.deadline - self.now()
        needed = 3 * self._round_s([arm], against)
        if expected + needed < left:
            return False
        why = f"its first use is expected to take {expected:.0f} s, of {max(left, 0):.0f} s left"
        self.evidence.ruled[arm_name(arm)] = Ruled(outcome=Outcome.SKIPPED, why=why)
        return True

    def _expected_s(self, one: Candidate) -> float:
        """As declared, in proportion to how long another of its kind really took."""
        scale = 1.0
        for name, seconds in self.evidence.preparation_s.items():
            keys = name.split("+")
            seen = [other for other in self.candidates if other.key in keys and other.preparation_s]
            if seen:
                scale = seconds / max(other.preparation_s for other in seen)
        return one.preparation_s * scale

    def _named(self, key: str) -> Candidate:
        return next(one for one in self.candidates if one.key == key)


def _larger(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)


def comparisons_of(evidence: Evidence, key: str) -> list[Comparison]:
    """Of this fix with what it was added to."""
    return [
        one
        for one in evidence.comparisons
        if one.log_ratios and one.arm and one.arm[-1] == key and key not in one.against
    ]
