"""What would fix a step, and how much each fix would buy: one file per fault.

Adding one is its file, one line in `REMEDIES`, one test. A user's own is added with `register`.
"""

from __future__ import annotations

from boundby.model.diagnosis import Finding, Range
from boundby.picture import Change, Picture
from boundby.remedies import (
    eager_launches,
    float32_products,
    host_sync,
    unfused_optimizer,
    waiting_for_data,
)
from boundby.remedies.remedy import HEADINGS, Imagined, Remedy

__all__ = ["HEADINGS", "REMEDIES", "Change", "Imagined", "Picture", "Remedy", "find", "register"]

REMEDIES: list[Remedy] = [
    host_sync.REMEDY,
    eager_launches.REMEDY,
    unfused_optimizer.REMEDY,
    waiting_for_data.REMEDY,
    float32_products.REMEDY,
]

# A finding worth less than this share of the step is not worth anyone's reading.
_WORTH_SAYING = 0.01


def register(remedy: Remedy) -> None:
    """Add a remedy of one's own; a fault that is known already fails loudly."""
    if any(known.fault == remedy.fault for known in REMEDIES):
        raise ValueError(f"there is a remedy for {remedy.fault} already")
    REMEDIES.append(remedy)


def find(picture: Picture) -> list[Finding]:
    """What would fix this step, the largest expected saving first."""
    findings = []
    for remedy in REMEDIES:
        imagined = remedy.imagine(picture)
        if imagined is None:
            continue
        finding = _finding(picture, remedy, imagined)
        if finding.saving_ns.high >= _WORTH_SAYING * picture.wall_ns:
            findings.append(finding)
    return sorted(findings, key=lambda finding: -finding.saving_ns.expected)


def _finding(picture: Picture, remedy: Remedy, imagined: Imagined) -> Finding:
    savings = sorted(
        picture.saving(change) for change in (imagined.worst, imagined.expected, imagined.best)
    )
    low, expected, high = (max(0.0, saving) for saving in savings)
    return Finding(
        fault=remedy.fault,
        group=remedy.group,
        where=imagined.where,
        saving_ns=Range(low=low, expected=expected, high=high),
        change=imagined.change,
        assumes=imagined.assumes,
        excludes=list(remedy.excludes),
        provable=False,
    )
