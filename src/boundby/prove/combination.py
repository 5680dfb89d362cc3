"""Which fixes go together: all that promise at once, then better ones, each change measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from boundby.model.diagnosis import Estimate
from boundby.prove.results import BASELINE, Arm, TrialStore

# A change must take this much off the step: adding one that held alone, and one that did not.
# Nearer to no difference than the third figure, ask again.
_GAIN_OF_HELD, _GAIN_OF_OTHERS, _NEAR = 0.01, 0.03, 0.03
_MOST_ASKED = 2
# What should be better, and is slower by no more than so many times what processes differ by, is
# asked once more than that.
_BAD_LUCK = 2.0
# One that gains nothing alone joins at once where the replay sees it gain this much in company.
_FORESEEN = 1.03
# Slower than this alone, it is not the host that hides what it gains.
_HARMLESS = 0.95
# A rival may be the better one in company if it was about as fast alone; a member may be idle in
# company if it was hardly faster alone.
_ABOUT_AS_FAST, _HARDLY_FASTER = 0.9, 1.05
# Without a measurement, what a replay must promise to be counted on when time is planned.
_COUNTED_ON = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One treatment, the faults it mends, and what a replay promised for them.

    `asked`: a user wants it tried, whatever speaks for it. `frees_host`: it takes the host out of
    the way of a device that waits for it. `silent`: a user's own, which need not say what it does.
    """

    key: str
    faults: tuple[str, ...]
    change: str
    predicted: Estimate | None = None
    precision: str | None = None
    excludes: frozenset[str] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    preparation_s: float = 0.0
    again_s: float = 0.0
    slot: str = ""
    covers: tuple[str, ...] = ()
    asked: bool = False
    frees_host: bool = False
    silent: bool = False
    written: Callable[[Collection[str]], str] | None = None

    def is_rival(self, other: Candidate) -> bool:
        """Whether the two are different ways to do one thing."""
        if self.slot or other.slot:
            return self.slot == other.slot
        return self.faults[0] == other.faults[0]

    def goes_with(self, others: Sequence[Candidate]) -> bool:
        mine = dict(self.environment)
        return not any(
            self.is_rival(other)
            or not other.excludes.isdisjoint(self.faults)
            or not self.excludes.isdisjoint(other.faults)
            or any(mine.get(name, value) != value for name, value in other.environment)
            for other in others
        )


# What a replay says of several candidates together, as a speed-up; None where it says nothing.
Foresee = Callable[[Sequence[Candidate]], Estimate | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """The best combination so far, and the arm to be measured next; None when all is known."""

    arm: Arm
    wanted: Arm | None


def combine(
    candidates: Sequence[Candidate], ledger: TrialStore, foresee: Foresee = lambda _: None
) -> Combined:
    """Replays all decisions from the ledger.

    A process that compiles takes long: so first all that promise, at once. Where that is no better
    than the best alone, one by one. Then others are added, rivals take places, idle ones leave.
    """
    queue = _queue(candidates, ledger)
    if not queue or not ledger.result((queue[0].key,)).promises:
        return Combined(arm=_or_better(BASELINE, ledger), wanted=None)
    chosen = [queue[0]]
    for changed, gain in _changes(chosen, queue, ledger, foresee):
        current, arm = _arm(chosen), _arm(changed)
        answer = _is_better(ledger, current, arm, gain)
        if answer is None:
            return Combined(arm=_or_better(current, ledger), wanted=arm)
        if answer:
            chosen[:] = changed
    return Combined(arm=_or_better(_arm(chosen), ledger), wanted=None)


def _or_better(arm: Arm, ledger: TrialStore) -> Arm:
    """Unless another that was measured is faster: one that was tried without its parts before."""
    best, least = arm, ledger.relative(arm)
    for other in dict.fromkeys(tuple(one.arm) for one in ledger.observed if len(one.arm) > 1):
        share = ledger.relative(other)
        if not ledger.result(other).promises or share is None:
            continue
        if least is None or share < (1 - _GAIN_OF_OTHERS) * least:
            best, least = other, share
    return best


def expected_arm(
    candidates: Sequence[Candidate], ledger: TrialStore, foresee: Foresee = lambda _: None
) -> Arm:
    """What is going to be the best combination, by what was measured and else by the replay."""
    ranked: list[tuple[float, Candidate]] = []
    for one in candidates:
        result = ledger.result((one.key,))
        if result.computes_right and result.speedup is not None:
            gain = result.speedup.median if result.speedup.high > 1 else 0.0
        elif ledger.tried((one.key,)) or one.predicted is None:
            continue
        else:
            gain = one.predicted.expected
        if gain > _COUNTED_ON:
            ranked.append((gain, one))
    chosen: list[Candidate] = []
    for _, one in sorted(ranked, key=lambda pair: (-pair[0], -len(pair[1].covers))):
        if one.goes_with(chosen):
            chosen.append(one)
    if len(chosen) > 1:
        chosen += _foreseen(chosen, _queue(candidates, ledger), ledger, foresee)
    return _arm(chosen)


def _arm(chosen: Sequence[Candidate]) -> Arm:
    return tuple(one.key for one in chosen)


def _changes(
    chosen: list[Candidate], queue: Sequence[Candidate], ledger: TrialStore, foresee: Foresee
) -> Iterator[tuple[list[Candidate], float]]:
    """What may be better than `chosen`, which its caller keeps up to date; with the gain to ask."""
    noise = 1.5 * float(ledger.spread().std())
    union = _union(queue, ledger, foresee)
    if len(union) > 2:
        yield union, _GAIN_OF_HELD
    for one in queue:
        if one not in chosen and one.goes_with(chosen):
            promises = ledger.result((one.key,)).promises
            yield [*chosen, one], _GAIN_OF_HELD if promises else max(_GAIN_OF_OTHERS, noise)
    for one in queue:
        for place, member in enumerate(list(chosen)):
            others = [other for other in chosen if other is not member]
            if one in chosen or not one.is_rival(member) or not one.goes_with(others):
                continue
            if _alone(ledger, one) > _ABOUT_AS_FAST * _alone(ledger, member) and others:
                yield [*chosen[:place], one, *chosen[place + 1 :]], _GAIN_OF_HELD
    for member in list(reversed(chosen)):
        if len(chosen) > 2 and member in chosen and _alone(ledger, member) < _HARDLY_FASTER:
            yield [one for one in chosen if one is not member], 0.0


def _alone(ledger: TrialStore, candidate: Candidate) -> float:
    found = ledger.result((candidate.key,)).speedup
    return found.median if found is not None else 0.0


def _union(queue: Sequence[Candidate], ledger: TrialStore, foresee: Foresee) -> list[Candidate]:
    """All that promise and go together; and what is foreseen to gain only in their company."""
    chosen: list[Candidate] = []
    for one in queue:
        if ledger.result((one.key,)).promises and one.goes_with(chosen):
            chosen.append(one)
    return [*chosen, *_foreseen(chosen, queue, ledger, foresee)]


def _foreseen(
    chosen: Sequence[Candidate], others: Sequence[Candidate], ledger: TrialStore, foresee: Foresee
) -> list[Candidate]:
    """Those of the others that a replay sees gain in this company, whatever they did alone."""
    company = list(chosen)
    for one in others:
        if one in company or not one.goes_with(company):
            continue
        without, with_ = foresee(company), foresee([*company, one])
        if without is None or with_ is None:
            continue
        if with_.expected * _kept_word(ledger, one, company) > _FORESEEN * without.expected:
            company.append(one)
    return company[len(chosen) :]


def _kept_word(ledger: TrialStore, candidate: Candidate, company: Sequence[Candidate]) -> float:
    """The part of what was promised for a fix alone that was seen; at most all of it.

    In the company of one that takes the host out of the way it says nothing: what was seen alone
    may have been the host's time, which hides what the device saves.
    """
    if candidate.predicted is None or any(one.frees_host for one in company):
        return 1.0
    return min(1.0, _alone(ledger, candidate) / candidate.predicted.expected)


def _is_better(ledger: TrialStore, current: Arm, arm: Arm, gain: float) -> bool | None:
    """Whether an arm takes its place; None while it is to be measured, for the first time or again.

    One that fails, or computes something else, does not.
    """
    tried = ledger.tried(arm)
    if not tried:
        return None
    before, after = ledger.relative(current), ledger.relative(arm)
    if before is None or after is None or not ledger.result(arm).computes_right:
        return False
    saved = 1 - after / before
    if len(tried) < _MOST_ASKED and abs(saved) < _NEAR:
        return None
    unlucky = gain > saved > -_BAD_LUCK * float(ledger.spread().std())
    if gain == _GAIN_OF_HELD and unlucky and len(tried) <= _MOST_ASKED:
        return None
    return saved > gain


def _queue(candidates: Sequence[Candidate], ledger: TrialStore) -> list[Candidate]:
    """Each fault's treatments that may be added, best first; those that held before the rest.

    One that gains nothing alone may gain with others: what saves device time shows only once the
    host is out of the way.
    """
    known = [(one, ledger.result((one.key,))) for one in candidates]
    able = [(one, result) for one, result in known if result.computes_right]
    ranked = sorted(
        able,
        key=lambda pair: (
            not pair[1].promises,
            -(pair[1].speedup.median if pair[1].speedup else 0),
        ),
    )
    slowest = _HARMLESS if any(one.frees_host for one in candidates) else 1.0
    return [
        one
        for one, result in ranked
        if result.promises or (result.speedup is not None and result.speedup.high > slowest)
    ]
