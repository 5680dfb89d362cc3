"""Which fixes go together: greedily, best first, each addition measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boundby.model.diagnosis import Range
from boundby.trials.ledger import BASELINE, Arm, Ledger

# An addition must take this much off the step: one that held alone, and one that did not. Nearer to
# no difference than the third figure, ask again.
_GAIN_OF_HELD, _GAIN_OF_OTHERS, _NEAR = 0.01, 0.03, 0.03
_MOST_ASKED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One treatment, the faults it mends, and what a replay promised for the first of them."""

    key: str
    faults: tuple[str, ...]
    change: str
    predicted: Range | None = None
    precision: str | None = None
    excludes: frozenset[str] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    preparation_s: float = 0.0
    slot: str = ""
    covers: tuple[str, ...] = ()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """The best combination so far, and the arm to be measured next; None when all is known."""

    arm: Arm
    wanted: Arm | None


def combine(candidates: Sequence[Candidate], ledger: Ledger) -> Combined:
    """Replays all decisions from the ledger."""
    queue = _queue(candidates, ledger)
    if not queue or not ledger.result((queue[0].key,)).promises:
        return Combined(arm=BASELINE, wanted=None)
    chosen = [queue[0]]
    noise = 1.5 * float(ledger.spread().std())
    for candidate in queue[1:]:
        if not candidate.goes_with(chosen):
            continue
        current = tuple(one.key for one in chosen)
        arm = (*current, candidate.key)
        tried = ledger.tried(arm)
        if not tried:
            return Combined(arm=current, wanted=arm)
        before, after = ledger.median_ns(current), ledger.median_ns(arm)
        if before is None or after is None or not ledger.result(arm).computes_right:
            continue
        if len(tried) < _MOST_ASKED and abs(after / before - 1) < _NEAR:
            return Combined(arm=current, wanted=arm)
        promises = ledger.result((candidate.key,)).promises
        if 1 - after / before > (_GAIN_OF_HELD if promises else max(_GAIN_OF_OTHERS, noise)):
            chosen.append(candidate)
    return Combined(arm=tuple(one.key for one in chosen), wanted=None)


def _queue(candidates: Sequence[Candidate], ledger: Ledger) -> list[Candidate]:
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
    return [
        one
        for one, result in ranked
        if result.promises or (result.speedup is not None and result.speedup.high > 1)
    ]
