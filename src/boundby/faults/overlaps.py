"""Findings about the same time.

Two faults may have the same fix. A general fault may name a line whose cause a specific fault
knows: the time at that line then belongs to the specific one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from boundby.model.assumptions.detection import SPECIFIC_FINDINGS
from boundby.model.estimate import Estimate
from boundby.model.finding import Finding


def without_repeats(findings: Sequence[Finding]) -> list[Finding]:
    """Merge faults that exclude each other and need the same fix: they are a single gain."""
    kept: list[Finding] = []
    for finding in findings:
        same = [at for at, first in enumerate(kept) if _has_same_fix(first, finding)]
        if not same:
            kept.append(finding)
            continue
        first = kept[same[0]]
        saving = first.saving_ns
        kept[same[0]] = msgspec.structs.replace(
            first,
            also=[*first.also, finding.fault],
            where=list(dict.fromkeys([*first.where, *finding.where])),
            saving_ns=Estimate(
                low=saving.low,
                expected=saving.expected,
                high=max(saving.high, finding.saving_ns.high),
            ),
        )
    return kept


def _has_same_fix(one: Finding, other: Finding) -> bool:
    exclude = one.fault in other.excludes or other.fault in one.excludes
    return exclude and bool(one.fixes) and one.fixes[:1] == other.fixes[:1]


def yielding(
    findings: Sequence[Finding], yields_to: Mapping[str, Collection[str]]
) -> list[Finding]:
    """Each general finding reduced to what the specific ones leave of it at its own lines.

    `yields_to`: by general fault, the specific ones. The rest counts if it is half of the finding
    or has lines that no specific one names; otherwise the general fault is added to `also` of the
    largest specific one.
    """
    kept = {finding.fault: finding for finding in findings}
    for fault in list(kept):
        general = kept[fault]
        specific = [
            one
            for one in kept.values()
            if one.fault in yields_to.get(general.fault, ())
            and not one.static
            and one.relative_to == general.relative_to
            and set(one.where) & set(general.where)
        ]
        if not specific:
            continue
        taken = sum(one.saving_ns.expected for one in specific)
        named = {line for one in specific for line in one.where}
        lines = [line for line in general.where if line not in named]
        saving = general.saving_ns
        left = saving.expected - taken
        # Lines are in order of time: without the first, little is left at the others.
        others = lines[:1] == general.where[:1] and left > 0
        if others or left >= SPECIFIC_FINDINGS.value * saving.expected:
            kept[fault] = msgspec.structs.replace(
                general, where=lines or general.where, saving_ns=_less(saving, taken)
            )
            continue
        del kept[fault]
        largest = max(specific, key=lambda one: one.saving_ns.expected)
        kept[largest.fault] = msgspec.structs.replace(largest, also=[*largest.also, fault])
    return list(kept.values())


def _less(saving: Estimate, taken: float) -> Estimate:
    expected = saving.expected - taken
    low, high = max(0.0, saving.low - taken), max(expected, saving.high - taken)
    return Estimate(low=low, expected=expected, high=high)
