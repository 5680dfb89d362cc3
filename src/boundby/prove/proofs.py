"""Turns measurements into proofs: one per fix, one for the combination, one for fresh processes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from boundby.model.proof import Outcome, Peak, Proof
from boundby.prove.candidate import Candidate
from boundby.prove.changes import change_of, changes_of, label_of, names_of
from boundby.prove.confidence import product_of
from boundby.prove.evidence import (
    BASELINE,
    Comparison,
    Evidence,
    Ruling,
    adding_comparison,
    chain_of,
    comparisons_of,
)
from boundby.prove.process_proofs import (
    BUDGET_ENDED,
    MORE_TIME,
    ProcessResults,
    final_proof,
    interval_of,
    start_fix_proof,
)

_UNCHECKED = (
    "faster, but measuring ended before its results were compared; a larger budget allows it"
)
_NOT_TOGETHER = "undecided in combination with the fixes kept; a larger budget may decide"
_NONE = ProcessResults()


def proofs_of(
    evidence: Evidence, candidates: Sequence[Candidate], processes: ProcessResults = _NONE
) -> list[Proof]:
    proofs = []
    for candidate in candidates:
        if candidate.scope == "start":
            proofs.append(
                start_fix_proof(candidate, processes, evidence.rulings.get((candidate.key,)))
            )
        else:
            proof = step_fix_proof(candidate, evidence, candidates, processes.live_starts)
            if not is_hidden(candidate, proof, evidence):
                proofs.append(proof)
    chosen = [*evidence.chosen, *processes.chosen_starts]
    if len(chosen) > 1:
        proofs.append(_combined_proof(evidence, candidates, processes))
    if processes.final is not None and chosen:
        proofs.append(final_proof(chosen, candidates, evidence, processes))
    words = processes.words
    return [
        structs.replace(proof, change=words[proof.treatment]) if proof.treatment in words else proof
        for proof in proofs
    ]


def is_hidden(candidate: Candidate, proof: Proof, evidence: Evidence) -> bool:
    """Whether the fix was neither requested nor suggested nor measured."""
    ruled = ruling_of(candidate, None, evidence)
    took_time = ruled is not None and ruled.wants_time
    return candidate.without_finding and proof.outcome is Outcome.SKIPPED and not took_time


def step_fix_proof(
    candidate: Candidate,
    evidence: Evidence,
    candidates: Sequence[Candidate],
    live_starts: Sequence[str],
) -> Proof:
    measured = comparisons_of(evidence, candidate.key)
    comparison = next(
        (c for c in measured if c.against == BASELINE), measured[-1] if measured else None
    )
    is_chosen = candidate.key in evidence.chosen
    if is_chosen:
        comparison = adding_comparison(evidence, candidate.key) or comparison
    replaced_by = next(
        (
            other.fix
            for other in candidates
            if other.key in evidence.chosen and not candidate.is_compatible_with([other])
        ),
        None,
    )
    outcome, why, log = _outcome(candidate, comparison, evidence, is_chosen, replaced_by)
    ruled = None if is_chosen else ruling_of(candidate, comparison, evidence)
    variant = comparison.variant if comparison is not None else (candidate.key,)
    against = comparison.against if comparison is not None else BASELINE
    beside = [key for key in against if key in variant]
    replaced = [key for key in against if key not in variant]
    return Proof(
        faults=list(candidate.faults),
        fixes=[candidate.fix],
        treatment=candidate.fix,
        against=label_of(names_of((*live_starts, *beside), candidates)) if comparison else "",
        replaces=label_of(names_of(replaced, candidates)),
        before_ns=list(comparison.before_ns) if comparison is not None else [],
        after_ns=list(comparison.after_ns) if comparison is not None else [],
        speedup=comparison.speedup if comparison is not None else None,
        predicted=candidate.predicted,
        peak_bytes=_peak(comparison),
        numerics=evidence.checked.get(variant),
        preparation_s=evidence.preparation_s.get(variant),
        outcome=outcome,
        why=why,
        change=change_of(candidate, evidence),
        log=log,
        open=why == BUDGET_ENDED
        or (ruled is not None and ruled.wants_time)
        or (outcome is Outcome.INCONCLUSIVE and not _was_given_up(comparison, evidence)),
    )


def _was_given_up(comparison: Comparison | None, evidence: Evidence) -> bool:
    """Whether it was given up: the search has ended, and it did not look faster."""
    return comparison is not None and evidence.done and comparison.middle <= 1


def _outcome(
    candidate: Candidate,
    comparison: Comparison | None,
    evidence: Evidence,
    is_chosen: bool,
    replaced_by: str | None,
) -> tuple[Outcome, str, str | None]:
    if is_chosen:
        variant = comparison.variant if comparison is not None else (candidate.key,)
        numerics = evidence.checked.get(variant)
        same = "same results: " if numerics is not None and numerics.ok else ""
        return Outcome.KEPT, same + (numerics.why if numerics is not None else ""), None
    ruled = ruling_of(candidate, comparison, evidence)
    if ruled is not None:
        return ruled.outcome, ruled.why, ruled.log
    if comparison is None:
        return Outcome.SKIPPED, evidence.ended or BUDGET_ENDED, None
    speedup = comparison.speedup
    if comparison.decision == "faster" and comparison.variant not in evidence.checked:
        return Outcome.INCONCLUSIVE, _UNCHECKED, None
    if comparison.decision == "faster":
        if replaced_by is not None:
            why = f"faster, but {replaced_by} is even faster, and only one of them can be applied"
            return Outcome.NO_GAIN, why, None
        if _is_decided_together(candidate.key, evidence):
            return Outcome.NO_GAIN, "faster alone, but not in combination with the fixes kept", None
        return Outcome.INCONCLUSIVE, f"faster alone; {_NOT_TOGETHER}", None
    if comparison.decision == "no gain":
        slower = comparison.middle < 1 and (speedup is None or speedup.high < 1)
        return Outcome.NO_GAIN, "it is slower" if slower else interval_of(speedup), None
    if replaced_by is not None and comparison.decision == "open":
        why = f"{replaced_by} looks faster, and only one of them can be applied"
        return Outcome.NO_GAIN, why, None
    if speedup is None:
        count = len(comparison.log_ratios)
        words = "1 round is" if count == 1 else f"{count} rounds are"
        return Outcome.INCONCLUSIVE, f"{words} too few to decide", None
    is_over = _was_given_up(comparison, evidence)
    more = "not faster on average, and not measured further" if is_over else MORE_TIME
    return Outcome.INCONCLUSIVE, f"{interval_of(speedup)} includes no effect; {more}", None


def _is_decided_together(key: str, evidence: Evidence) -> bool:
    """Whether the fix was measured beside others that were kept, and gained nothing there."""
    beside = [one for one in comparisons_of(evidence, key) if one.against]
    return any(one.decision == "no gain" or evidence.done for one in beside)


def ruling_of(
    candidate: Candidate, comparison: Comparison | None, evidence: Evidence
) -> Ruling | None:
    variants = [
        *([comparison.variant] if comparison is not None else []),
        (candidate.key,),
        *(variant for variant in evidence.rulings if variant[-1:] == (candidate.key,)),
    ]
    return next((evidence.rulings[each] for each in variants if each in evidence.rulings), None)


def _combined_proof(
    evidence: Evidence, candidates: Sequence[Candidate], processes: ProcessResults
) -> Proof:
    """The product of the speed-ups with which the chosen fixes were added."""
    chain = chain_of(evidence)
    starts = [processes.starts[key] for key in processes.chosen_starts]
    ratios = [*(measured.speedup for measured in chain), *(measured.speedup for measured in starts)]
    speedup = product_of([speedup for speedup in ratios if speedup is not None])
    last_start = starts[-1].after_ns if starts else []
    is_live_last = chain and len(processes.live_starts) == len(processes.chosen_starts)
    after = list(chain[-1].after_ns if is_live_last else last_start)
    fixes = {candidate.key: candidate for candidate in candidates}
    chosen = (*evidence.chosen, *processes.chosen_starts)
    return Proof(
        faults=[fault for key in chosen for fault in fixes[key].faults],
        fixes=names_of(chosen, candidates),
        treatment=label_of(names_of(chosen, candidates)),
        before_ns=[ns * speedup.median for ns in after] if speedup is not None else [],
        after_ns=after,
        speedup=speedup,
        peak_bytes=Peak(
            before=chain[0].peak_bytes_before if chain else None,
            after=chain[-1].peak_bytes_after if chain else None,
        ),
        numerics=evidence.checked.get(evidence.chosen),
        outcome=Outcome.KEPT,
        why="live: the product of the speed-ups with which they were added",
        change=changes_of(chosen, candidates, evidence, processes.words),
    )


def _peak(comparison: Comparison | None) -> Peak:
    if comparison is None:
        return Peak()
    return Peak(before=comparison.peak_bytes_before, after=comparison.peak_bytes_after)
