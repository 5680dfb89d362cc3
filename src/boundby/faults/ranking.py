"""The order in which findings are shown: what an expert would do first.

1. Mistakes that were measured and cost something, the largest expected saving first; and what
   takes more memory with every step, which ends the run.
2. Everything else that makes the step or the run shorter. A saving that may be nothing is ranked by
   its expected value like any other; its `remark` says that it may.
3. Mistakes that were found by reading the source alone; then notes, on what costs a run once.
4. A larger batch, which makes no step shorter: first only when no mistake was found and nothing
   else is worth doing.

A finding whose change must come before another's (`before`) is put before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from boundby.model.finding import Finding
from boundby.model.run import RunParts

# A mistake that costs at least this share of the step or the run comes before tuning that saves
# more.
_MATTERS = 0.02
# A finding that saves a smaller share of the step may come after a larger batch.
_WORTH_ACTING = 0.01
# So may a mistake that saves less than what is shown as 0.1%.
_IS_FOUND = 0.0005
_MAY_BE_NOTHING = (
    "the range starts at zero, so it may save nothing: it is ranked by its expected saving"
)


def ranked(
    findings: Sequence[Finding],
    *,
    wall_ns: float,
    run: RunParts | None = None,
    before: Mapping[str, Sequence[str]] | None = None,
) -> list[Finding]:
    """The findings in the order of the headings above. `before`: by fault, the faults it
    precedes."""

    def share(finding: Finding) -> float:
        expected = finding.saving_ns.expected
        if finding.relative_to == "run":
            return expected / run.recurring_ns if run is not None and run.recurring_ns else 0.0
        steps = run.step_share_of_recurring if run is not None else None
        return expected / wall_ns * (1.0 if steps is None else steps) if wall_ns else 0.0

    def tier(finding: Finding) -> int:
        if finding.relative_to == "samples":
            return 3 if share(finding) >= _WORTH_ACTING else 4
        if finding.grows:
            return 0
        if share(finding) < _WORTH_ACTING:
            is_found = finding.kind == "mistake" and share(finding) >= _IS_FOUND
            return 2 if is_found else 4
        if finding.static:
            return 2
        if finding.kind == "note":
            return 3
        return 0 if finding.kind == "mistake" and share(finding) >= _MATTERS else 1

    ordered = sorted(findings, key=lambda finding: (tier(finding), -share(finding)))
    return [_remarked(finding) for finding in _respecting(ordered, before or {})]


def _respecting(findings: list[Finding], before: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Move each finding before the first of those that must come after it."""
    ordered = list(findings)
    for finding in reversed(findings):
        after = set(before.get(finding.fault, ()))
        at = ordered.index(finding)
        first = next((i for i, one in enumerate(ordered[:at]) if one.fault in after), None)
        if first is not None:
            ordered.insert(first, ordered.pop(at))
    return ordered


def _remarked(finding: Finding) -> Finding:
    saving = finding.saving_ns
    if saving.low > 0 or not saving.expected or finding.remark:
        return finding
    return msgspec.structs.replace(finding, remark=_MAY_BE_NOTHING)
