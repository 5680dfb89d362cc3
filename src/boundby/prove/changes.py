"""What fixes change, in words: the names of several, and what a user would write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boundby.fixes import FIXES, Fix
from boundby.prove.candidate import Candidate
from boundby.prove.evidence import Evidence
from boundby.prove.sites import ChosenFix


def chosen_fixes(
    evidence: Evidence, candidates: Sequence[Candidate], starts: Sequence[str] = ()
) -> list[ChosenFix]:
    by_key = {candidate.key: candidate for candidate in candidates}
    return [
        ChosenFix(
            fix=by_key[key].fix,
            change=change_of(by_key[key], evidence),
            environment=by_key[key].environment,
            objects=evidence.objects.get(key, []),
        )
        for key in (*evidence.chosen, *starts)
    ]


def change_of(candidate: Candidate, evidence: Evidence) -> str:
    fix: Fix | None = next((fix for fix in FIXES if fix.name == candidate.fix), None)
    words = evidence.changes_made.get(candidate.key)
    if fix is not None and fix.written is not None and words:
        return fix.written(words)
    return candidate.change


def changes_of(
    keys: Sequence[str],
    candidates: Sequence[Candidate],
    evidence: Evidence,
    words: Mapping[str, str],
) -> str:
    """The changes of these fixes, one per line. `words`: by fix, in the terms of a framework."""
    by_key = {candidate.key: candidate for candidate in candidates}
    return "\n".join(words.get(by_key[key].fix) or change_of(by_key[key], evidence) for key in keys)


def names_of(variant: Sequence[str], candidates: Sequence[Candidate]) -> list[str]:
    fix_names = {candidate.key: candidate.fix for candidate in candidates}
    return [fix_names.get(key, key) for key in variant]


def label_of(names: Sequence[str]) -> str:
    return " + ".join(names)
