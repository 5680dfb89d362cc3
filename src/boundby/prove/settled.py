"""Lines on fixes that are decided while others are still measured; fixes that were not measured."""

from __future__ import annotations

from collections.abc import Sequence

from boundby.model.proof import Outcome
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence, comparisons_of
from boundby.prove.proofs import is_hidden, ruling_of, step_fix_proof


def settled_lines(
    evidence: Evidence, candidates: Sequence[Candidate], live_starts: Sequence[str] = ()
) -> dict[str, str]:
    """A line for each fix that is already decided, while others are still measured."""
    lines = {}
    for candidate in candidates:
        if candidate.scope == "start":
            continue
        proof = step_fix_proof(candidate, evidence, candidates, live_starts)
        if is_hidden(candidate, proof, evidence):
            continue
        is_kept = proof.outcome is Outcome.KEPT
        comparisons = comparisons_of(evidence, candidate.key)
        is_decided = is_kept or any(each.decision == "no gain" for each in comparisons)
        if (
            not is_decided
            and ruling_of(candidate, comparisons[0] if comparisons else None, evidence) is None
        ):
            continue
        ratio = f", {proof.speedup.median:.2f}x" if proof.speedup else ""
        why = f" ({proof.why})" if not is_kept and proof.why else ""
        lines[candidate.key] = f"{candidate.fix}{proof.setting}: {proof.outcome}{ratio}{why}"
    return lines


def untried_names(evidence: Evidence, candidates: Sequence[Candidate]) -> list[str]:
    """Fixes without a finding that were not measured."""
    return [
        candidate.fix
        for candidate in candidates
        if candidate.without_finding
        and candidate.scope == "step"
        and not comparisons_of(evidence, candidate.key)
        and ruling_of(candidate, None, evidence) is None
    ]
