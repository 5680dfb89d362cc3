"""What would fix a step, and how much each fix would buy: one file per fault.

Adding one is its file, one line in `FAULTS`, one test. A user's own is added with `register`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from boundby.faults import (
    at_the_roof,
    batch_too_small,
    collector_pauses,
    dense_tables,
    eager_launches,
    exposed_collectives,
    far_from_roof,
    float32_activations,
    float32_products,
    fragmented_memory,
    growing_cache,
    host_sync,
    layout_copies,
    logits_materialised,
    looped_samples,
    materialised_attention,
    memory_given_back,
    openmp_spin,
    pageable_copies,
    python_in_step,
    recompilation,
    repeated_casts,
    slow_attention,
    slow_dropout,
    slow_sixteen_bits,
    unfused_operators,
    unfused_optimizer,
    waiting_for_data,
    wasted_tiles,
    wasteful_checkpointing,
    zeroed_gradients,
)
from boundby.faults.batch_too_small import batches
from boundby.faults.combinations import combined, wall_of
from boundby.faults.fault import HEADINGS, Detection, Fault, Fix
from boundby.model.diagnosis import Estimate, Finding, WhatIf
from boundby.step.model import Edit, StepModel

__all__ = [
    "FAULTS",
    "HEADINGS",
    "Detection",
    "Edit",
    "Fault",
    "Fix",
    "StepModel",
    "batches",
    "combine",
    "find",
    "register",
]

# In the order in which several are imagined together: what replaces kernels before what fuses the
# rest, and launches last.
FAULTS: list[Fault] = [
    looped_samples.FAULT,
    python_in_step.FAULT,
    float32_products.FAULT,
    float32_activations.FAULT,
    slow_sixteen_bits.FAULT,
    materialised_attention.FAULT,
    slow_attention.FAULT,
    slow_dropout.FAULT,
    wasted_tiles.FAULT,
    layout_copies.FAULT,
    repeated_casts.FAULT,
    growing_cache.FAULT,
    logits_materialised.FAULT,
    wasteful_checkpointing.FAULT,
    zeroed_gradients.FAULT,
    dense_tables.FAULT,
    unfused_optimizer.FAULT,
    unfused_operators.FAULT,
    far_from_roof.FAULT,
    exposed_collectives.FAULT,
    pageable_copies.FAULT,
    host_sync.FAULT,
    waiting_for_data.FAULT,
    collector_pauses.FAULT,
    fragmented_memory.FAULT,
    memory_given_back.FAULT,
    recompilation.FAULT,
    openmp_spin.FAULT,
    eager_launches.FAULT,
    batch_too_small.FAULT,
    at_the_roof.FAULT,
]

# A finding worth less than this share of the step is not worth anyone's reading.
_WORTH_SAYING = 0.01
_MOST_INSIDE = 3


def register(remedy: Fault) -> None:
    """Add a remedy of one's own; a fault that is known already fails loudly."""
    if any(known.fault == remedy.fault for known in FAULTS):
        raise ValueError(f"there is a remedy for {remedy.fault} already")
    FAULTS.append(remedy)


def find(step_models: Sequence[StepModel]) -> list[Finding]:
    """What would fix this step, the largest expected saving first.

    Several pictures are the same step under different assumptions, the likeliest first: the
    saving's interval then spans them all.
    """
    findings = []
    for remedy in FAULTS:
        detection = [(step_model, remedy.detect(step_model)) for step_model in step_models]
        known = [(step_model, found) for step_model, found in detection if found is not None]
        if not known:
            continue
        finding = _finding(known, remedy, step_models[0])
        if finding.saving_ns.high >= _WORTH_SAYING * step_models[0].wall_ns:
            findings.append(finding)
    ranked = sorted(findings, key=lambda finding: -finding.saving_ns.expected)
    return _without_repeats(ranked)


def _without_repeats(findings: Sequence[Finding]) -> list[Finding]:
    """Of faults that exclude each other and ask for the same line, one: it is a single gain."""
    kept: list[Finding] = []
    for finding in findings:
        same = [at for at, first in enumerate(kept) if _asks_the_same(first, finding)]
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


def _asks_the_same(one: Finding, other: Finding) -> bool:
    exclude = one.fault in other.excludes or other.fault in one.excludes
    code, others = (finding.change.partition("  #")[0] for finding in (one, other))
    return exclude and code == others


def combine(step_models: Sequence[StepModel], findings: Sequence[Finding]) -> list[WhatIf]:
    """The step's time with every combination of findings that do not exclude each other."""
    found = {finding.fault for finding in findings}
    return combined(step_models, [one for one in FAULTS if one.combines and one.fault in found])


def _inside(step_model: StepModel, detection: Detection) -> list[str]:
    """The lines of libraries at which there would be less to do, the most first."""
    less: dict[int, float] = {}
    for index, ns in detection.expected.work_ns.items():
        work = step_model.op_records[index]
        if work.inside >= 0:
            less[work.inside] = less.get(work.inside, 0.0) + work.ns - ns
    ranked = sorted((place for place in less if less[place] > 0), key=lambda place: -less[place])
    return [step_model.timeline.sources[place] for place in ranked[:_MOST_INSIDE]]


def _finding(
    known: list[tuple[StepModel, Detection]], remedy: Fault, likeliest: StepModel
) -> Finding:
    savings = [
        max(0.0, wall_of(step_model.base_ns - step_model.replay(change), step_model, likeliest))
        for step_model, found in known
        for change in (found.worst, found.expected, found.best)
    ]
    detection = known[0][1]
    # A fault that the likeliest picture does not show saves nothing there.
    seen = known[0][0] is likeliest
    expected = savings[1] if seen else 0.0
    savings += [] if seen else [0.0]
    return Finding(
        fault=remedy.fault,
        group=remedy.group,
        where=detection.where,
        inside=_inside(*known[0]) if detection.where else [],
        saving_ns=Estimate(low=min(savings), expected=expected, high=max(savings)),
        change=detection.change,
        assumes=detection.assumes,
        excludes=list(remedy.excludes),
        out_of=remedy.out_of,
        provable=bool(remedy.treatments),
        summary=remedy.summary,
        why=remedy.section("Why it costs time"),
        when_not=remedy.section("When it does not help"),
    )
