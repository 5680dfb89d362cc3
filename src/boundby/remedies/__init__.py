"""What would fix a step, and how much each fix would buy: one file per fault.

Adding one is its file, one line in `REMEDIES`, one test. A user's own is added with `register`.
"""

from __future__ import annotations

from collections.abc import Sequence

from boundby.model.diagnosis import Finding, Range
from boundby.picture import Change, Picture
from boundby.remedies import (
    eager_launches,
    float32_products,
    host_sync,
    materialised_attention,
    unfused_optimizer,
    waiting_for_data,
    wasted_tiles,
)
from boundby.remedies.remedy import HEADINGS, Imagined, Remedy, Treatment

__all__ = [
    "HEADINGS",
    "REMEDIES",
    "Change",
    "Imagined",
    "Picture",
    "Remedy",
    "Treatment",
    "find",
    "register",
]

REMEDIES: list[Remedy] = [
    host_sync.REMEDY,
    eager_launches.REMEDY,
    unfused_optimizer.REMEDY,
    waiting_for_data.REMEDY,
    materialised_attention.REMEDY,
    float32_products.REMEDY,
    wasted_tiles.REMEDY,
]

# A finding worth less than this share of the step is not worth anyone's reading.
_WORTH_SAYING = 0.01


def register(remedy: Remedy) -> None:
    """Add a remedy of one's own; a fault that is known already fails loudly."""
    if any(known.fault == remedy.fault for known in REMEDIES):
        raise ValueError(f"there is a remedy for {remedy.fault} already")
    REMEDIES.append(remedy)


def find(pictures: Sequence[Picture]) -> list[Finding]:
    """What would fix this step, the largest expected saving first.

    Several pictures are the same step under different assumptions, the likeliest first: the
    saving's interval then spans them all.
    """
    findings = []
    for remedy in REMEDIES:
        imagined = [(picture, remedy.imagine(picture)) for picture in pictures]
        known = [(picture, found) for picture, found in imagined if found is not None]
        if not known:
            continue
        finding = _finding(known, remedy)
        if finding.saving_ns.high >= _WORTH_SAYING * pictures[0].wall_ns:
            findings.append(finding)
    return sorted(findings, key=lambda finding: -finding.saving_ns.expected)


def _finding(known: list[tuple[Picture, Imagined]], remedy: Remedy) -> Finding:
    savings = [
        max(0.0, picture.saving(change))
        for picture, found in known
        for change in (found.worst, found.expected, found.best)
    ]
    picture, imagined = known[0]
    expected = max(0.0, picture.saving(imagined.expected))
    low, high = min(savings), max(savings)
    return Finding(
        fault=remedy.fault,
        group=remedy.group,
        where=imagined.where,
        saving_ns=Range(low=low, expected=expected, high=high),
        change=imagined.change,
        assumes=imagined.assumes,
        excludes=list(remedy.excludes),
        provable=bool(remedy.treatments),
    )
