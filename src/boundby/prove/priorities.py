"""What may be hoped of each fix: what it is to save, beyond what its rivals do, for its time."""

from __future__ import annotations

from collections.abc import Sequence

from boundby.prove.combination import Candidate
from boundby.prove.results import TrialStore

# What is hoped of a fix that nothing is predicted for, as a share of the step; and of one whose
# rival is foreseen to do better, or was seen to: there may always be a surprise.
_UNKNOWN_PROMISE, _LEAST_PROMISE = 0.02, 0.002
# A rival that is not expected to be better by this much is looked at late.
_BETTER = 0.05


class CandidateRanking:
    """By what was promised, and by what the ledger holds of each and of those like it."""

    def __init__(self, candidates: Sequence[Candidate], ledger: TrialStore) -> None:
        self._candidates = candidates
        self._ledger = ledger

    def ranked(self, possible: Sequence[Candidate]) -> list[Candidate]:
        untried = [one for one in possible if not self._ledger.tried((one.key,))]
        # Of two that promise as much, the one that mends more: a replay does not see it all.
        return sorted(
            untried,
            key=lambda one: (not one.asked, -self._worth(one, possible), -len(one.covers)),
        )

    def is_second(self, candidate: Candidate, possible: Sequence[Candidate]) -> bool:
        """Whether it only does what another does about as well, as far as is known."""
        has_rival = any(one.is_rival(candidate) for one in possible if one is not candidate)
        return not candidate.asked and has_rival and self.promise(candidate, possible) < _BETTER

    def has_working_rival(self, candidate: Candidate) -> bool:
        return any(
            self._ledger.result((other.key,)).promises
            for other in self._candidates
            if other is not candidate and other.is_rival(candidate)
        )

    def hopeful(self, possible: Sequence[Candidate]) -> list[Candidate]:
        """Without those nobody has looked at that do in a like way what another has failed at.

        Of several that failed together, it is the one that nobody has looked at alone.
        """
        failed: list[Candidate] = []
        for arm in dict.fromkeys(tuple(one.arm) for one in self._ledger.observed if one.arm):
            members = [one for one in self._candidates if one.key in arm]
            unseen = [one for one in members if not self._ledger.tried((one.key,))]
            if self._ledger.tried(arm) and not self._ledger.result(arm).computes_right:
                failed += members if len(members) == 1 else unseen if len(unseen) == 1 else []
        return [
            one
            for one in possible
            if self._ledger.tried((one.key,))
            or not any(
                one is other or (one.is_rival(other) and one.covers == other.covers)
                for other in failed
            )
        ]

    def _worth(self, candidate: Candidate, possible: Sequence[Candidate]) -> float:
        """The share of the step that it may still save, for each second that it takes."""
        promise = self.promise(candidate, possible)
        return max(_LEAST_PROMISE, promise) / max(self._ledger.seconds((candidate.key,)), 1.0)

    def promise(self, candidate: Candidate, possible: Sequence[Candidate]) -> float:
        """What it is expected to save beyond what its rivals were seen to, or are expected to."""
        promise = promised(candidate)
        if not self.hopeful([candidate]):
            return _LEAST_PROMISE
        for rival in self.hopeful(possible):
            if rival is candidate or not rival.is_rival(candidate):
                continue
            result = self._ledger.result((rival.key,))
            if result.speedup is not None and result.computes_right:
                promise -= max(0.0, 1 - 1 / result.speedup.median)
            elif not self._ledger.tried((rival.key,)) and promised(rival) > promise + 0.02:
                return _LEAST_PROMISE
        return promise


def promised(candidate: Candidate) -> float:
    """The share of the step that it is to save."""
    predicted = candidate.predicted
    return _UNKNOWN_PROMISE if predicted is None else 1 - 1 / max(predicted.expected, 1.0)
