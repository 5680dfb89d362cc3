"""What is known of each fix while others are still measured, and which were not measured."""

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
    for one in candidates:
        if one.scope == "start":
            continue
        proof = step_fix_proof(one, evidence, candidates, live_starts)
        if is_hidden(one, proof, evidence):
            continue
        is_kept = proof.outcome is Outcome.KEPT
        found = comparisons_of(evidence, one.key)
        is_decided = is_kept or any(each.decision == "no gain" for each in found)
        if not is_decided and ruling_of(one, found[0] if found else None, evidence) is None:
            continue
        ratio = f", {proof.speedup.median:.2f}x" if proof.speedup else ""
        beside = f" beside {proof.against}" if proof.against else ""
        why = f" ({proof.why})" if not is_kept and proof.why else ""
        lines[one.key] = f"{one.fix}{beside}: {proof.outcome}{ratio}{why}"
    return lines


def untried_names(evidence: Evidence, candidates: Sequence[Candidate]) -> list[str]:
    """Fixes without a finding that were not measured."""
    return [
        one.fix
        for one in candidates
        if one.without_finding
        and one.scope == "step"
        and not comparisons_of(evidence, one.key)
        and ruling_of(one, None, evidence) is None
    ]
