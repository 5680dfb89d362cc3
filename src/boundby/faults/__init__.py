"""What would fix a step, and how much each fix would buy: one file per fault.

Adding one is its file, one line in `FAULTS`, one test. A user's own is added with `register`.
"""

from __future__ import annotations

from collections.abc import Sequence

from boundby.faults import (
    anomaly_detection,
    batch_too_small,
    broadcast_pairs,
    checkpoint_dominates,
    collector_pauses,
    copied_state,
    cudnn_benchmark,
    cut_results,
    data_parallel,
    dense_tables,
    deterministic_algorithms,
    distribution_checks,
    eager_launches,
    evaluation_dominates,
    exposed_collectives,
    far_from_roof,
    files_in_step,
    float32_activations,
    float32_products,
    float64,
    fragmented_memory,
    growing_cache,
    growing_memory,
    host_metrics,
    host_sync,
    jax_compilation_cache,
    jax_debug_checks,
    jax_eager_operators,
    jax_float32_products,
    jax_host_callbacks,
    jax_implicit_transfers,
    jax_looped_calls,
    jax_looped_samples,
    jax_many_leaves,
    jax_materialised_attention,
    jax_no_donation,
    jax_recompilation,
    jax_rematerialisation,
    jax_resharding,
    jax_transposed_arguments,
    jax_unrolled_loop,
    jax_wrapped_step,
    joined_lists,
    layout_copies,
    logits_materialised,
    looped_calls,
    looped_parameters,
    looped_samples,
    main_process_data,
    materialised_attention,
    memory_given_back,
    modules_made,
    no_grad_missing,
    no_key_value_cache,
    one_hot_products,
    openmp_spin,
    optimizer_too_often,
    padding,
    pageable_copies,
    python_in_step,
    rebuilt_tensors,
    recompilation,
    recorded_evaluation,
    repeated_backward,
    repeated_casts,
    repeated_forward,
    retained_graph,
    single_samples,
    slow_attention,
    slow_dropout,
    slow_sixteen_bits,
    softmax_log_apart,
    too_many_threads,
    unfused_operators,
    unfused_optimizer,
    unused_forward,
    unused_gradients,
    waiting_for_data,
    wasted_tiles,
    wasteful_checkpointing,
    workers_restarted,
    zeroed_gradients,
)
from boundby.faults.batch_too_small import batches
from boundby.faults.combinations import combined
from boundby.faults.fault import HEADINGS, Detection, Fault, Fix, Stage
from boundby.faults.overlaps import without_repeats, yielding
from boundby.faults.ranking import ranked
from boundby.fixes.frameworks import argument_of, framework_named, words_of
from boundby.model import units
from boundby.model.estimate import Estimate
from boundby.model.failures import Failures
from boundby.model.finding import Finding, RelativeTo, WhatIf
from boundby.step.model import Edit, StepModel, StepView
from boundby.step.prediction import predict_saving

__all__ = [
    "FAULTS",
    "HEADINGS",
    "Detection",
    "Edit",
    "Fault",
    "Fix",
    "Stage",
    "StepModel",
    "StepView",
    "batches",
    "combine",
    "find",
    "register",
]

# Faults of one stage are fixed together in this order.
FAULTS: list[Fault] = [
    anomaly_detection.FAULT,
    unused_forward.FAULT,
    repeated_forward.FAULT,
    repeated_backward.FAULT,
    no_key_value_cache.FAULT,
    no_grad_missing.FAULT,
    unused_gradients.FAULT,
    retained_graph.FAULT,
    modules_made.FAULT,
    rebuilt_tensors.FAULT,
    padding.FAULT,
    growing_memory.FAULT,
    optimizer_too_often.FAULT,
    float64.FAULT,
    files_in_step.FAULT,
    copied_state.FAULT,
    softmax_log_apart.FAULT,
    one_hot_products.FAULT,
    cut_results.FAULT,
    broadcast_pairs.FAULT,
    joined_lists.FAULT,
    looped_samples.FAULT,
    single_samples.FAULT,
    looped_parameters.FAULT,
    looped_calls.FAULT,
    distribution_checks.FAULT,
    deterministic_algorithms.FAULT,
    too_many_threads.FAULT,
    host_metrics.FAULT,
    main_process_data.FAULT,
    data_parallel.FAULT,
    python_in_step.FAULT,
    float32_products.FAULT,
    float32_activations.FAULT,
    slow_sixteen_bits.FAULT,
    materialised_attention.FAULT,
    jax_float32_products.FAULT,
    jax_materialised_attention.FAULT,
    jax_rematerialisation.FAULT,
    jax_resharding.FAULT,
    jax_transposed_arguments.FAULT,
    jax_host_callbacks.FAULT,
    jax_looped_calls.FAULT,
    jax_looped_samples.FAULT,
    slow_attention.FAULT,
    slow_dropout.FAULT,
    wasted_tiles.FAULT,
    layout_copies.FAULT,
    cudnn_benchmark.FAULT,
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
    jax_recompilation.FAULT,
    jax_no_donation.FAULT,
    jax_implicit_transfers.FAULT,
    jax_many_leaves.FAULT,
    jax_wrapped_step.FAULT,
    jax_debug_checks.FAULT,
    jax_compilation_cache.FAULT,
    jax_unrolled_loop.FAULT,
    openmp_spin.FAULT,
    evaluation_dominates.FAULT,
    recorded_evaluation.FAULT,
    checkpoint_dominates.FAULT,
    workers_restarted.FAULT,
    eager_launches.FAULT,
    jax_eager_operators.FAULT,
    batch_too_small.FAULT,
]

# Findings that save less than this share of the step are not reported, with few exceptions.
_WORTH_SAYING = 0.01
_MOST_INSIDE = 3  # display limit
# The tracebacks of faults that raise, by fault: while these are collected, other faults are still
# found.
failures = Failures("faults")
# A saving that exceeds its group by a smaller share counts as equal to the group.
_LARGER = 1.05
_WORKERS = "workers"  # whose number depends on the step
_GROWS = "memory grows with every step until it is full"
_OUT_OF: dict[RelativeTo, str] = {
    "step": "the step",
    "run": "the run",
    "samples": "the time of the same samples",
}


def register(fault: Fault) -> None:
    """Add a fault of the user's own; an existing id raises."""
    if any(known.id == fault.id for known in FAULTS):
        raise ValueError(f"there is a fault {fault.id} already")
    FAULTS.append(fault)


def find(step_models: Sequence[StepModel]) -> list[Finding]:
    """The findings of a step, in the order in which they should be fixed (`ranking`).

    Several models are the same step under different assumptions, the likeliest first: the saving's
    range then spans them all.
    """
    findings = []
    for fault in FAULTS:
        detections = [(step, _found_in(step, fault)) for step in step_models]
        known = [(step, found) for step, found in detections if found is not None]
        if not known:
            continue
        finding = _finding(known, fault, step_models[0])
        least_ns = _WORTH_SAYING * _whole_ns(finding, step_models[0])
        if fault.grows or fault.always or finding.saving_ns.high >= least_ns:
            findings.append(finding)
    step = step_models[0]
    found = without_repeats(sorted(findings, key=lambda finding: -finding.saving_ns.expected))
    found = yielding(found, {fault.id: fault.yields_to for fault in FAULTS if fault.yields_to})
    before = {fault.id: fault.before for fault in FAULTS if fault.before}
    return ranked(found, wall_ns=step.wall_ns, run=step.run, before=before)


def _found_in(step: StepModel, fault: Fault) -> Detection | None:
    try:
        return fault.find_in(step)
    except Exception:
        if not failures.note(fault.id):
            raise
        return None


def _whole_ns(finding: Finding, step: StepModel) -> float:
    """The time that the finding's saving is a share of."""
    is_of_run = finding.relative_to == "run" and step.run is not None
    return step.run.recurring_ns if is_of_run and step.run else step.wall_ns


def combine(step_models: Sequence[StepModel], findings: Sequence[Finding]) -> list[WhatIf]:
    """The step's time with every combination of findings that do not exclude each other."""
    found = {finding.fault for finding in findings if finding.relative_to != "run"}
    return combined(step_models, [one for one in FAULTS if one.combines and one.id in found])


def _inside(step: StepModel, detection: Detection) -> list[str]:
    """The library lines at which time would be saved, the most first."""
    saved: dict[int, float] = {}
    for index, ns in detection.expected.op_ns.items():
        record = step.op_records[index]
        if record.inside >= 0:
            saved[record.inside] = saved.get(record.inside, 0.0) + record.ns - ns
    ranked = sorted((place for place in saved if saved[place] > 0), key=lambda at: -saved[at])
    return [step.timeline.sources[place] for place in ranked[:_MOST_INSIDE]]


def _finding(
    known: list[tuple[StepModel, Detection]], fault: Fault, likeliest: StepModel
) -> Finding:
    detection = known[0][1]
    edits = [(step, (found.low, found.expected, found.high)) for step, found in known]
    saving_ns = detection.of_run_ns or predict_saving(edits, likeliest)
    fixes = _fix_ids(fault, detection, likeliest.machine.kind)
    relative_to = "run" if detection.of_run_ns is not None else fault.relative_to
    return Finding(
        remark=_GROWS if fault.grows else _remark(fault, detection, saving_ns, likeliest),
        fault=fault.id,
        title=fault.title,
        kind=detection.kind or fault.kind,
        group=fault.group,
        where=list(dict.fromkeys(detection.where)),  # two loops may be on one line
        inside=_inside(*known[0]) if detection.where else [],
        saving_ns=saving_ns,
        relative_to=relative_to,
        out_of=_OUT_OF[relative_to],
        change=_in_framework_words(fixes, likeliest) or detection.change,
        assumes=detection.assumes,
        evidence=detection.evidence,
        static=detection.is_static,
        grows=fault.grows,
        fixes=fixes,
        excludes=list(fault.excludes),
        provable=bool(fault.fixes),
        summary=fault.summary,
        why=fault.section("Why it costs time"),
        when_not=fault.section("When it does not help"),
    )


def _remark(fault: Fault, detection: Detection, saving: Estimate, step: StepModel) -> str:
    """A remark if the saving is larger than the group that the finding belongs to."""
    group_ns = step.account.groups()[fault.group].ns
    is_of_step = fault.relative_to == "step" and detection.of_run_ns is None
    if not is_of_step or saving.expected <= _LARGER * group_ns:
        return ""
    acted_ns = sum(step.op_records[index].ns for index in detection.expected.op_ns)
    what = f"it acts on {units.time(acted_ns)} of operators" if acted_ns else "it acts on the step"
    waits = step.cpu_contention > _LARGER and acted_ns
    others = "their waiting for a CPU core" if waits else "the host time that issues them"
    return (
        f"more than the {units.time(group_ns)} of {fault.group}: {what}, of all groups, "
        f"and on {others}"
    )


def _in_framework_words(fixes: Sequence[str], step: StepModel) -> str | None:
    """The change as an argument of the framework that trains; None if it is made as in any
    script."""
    framework = framework_named(step.evidence.settings.trainer)
    argument = argument_of(framework, fixes[0]) if framework is not None and fixes else None
    if framework is None or argument is None or fixes[0].startswith(_WORKERS):
        return None
    return words_of(framework, argument)


def _fix_ids(fault: Fault, detection: Detection, device: str) -> list[str]:
    """The fixes for this device; first the one of the detection's change."""
    first = (detection.fix,) if detection.fix else ()
    rest = (fix for fix in fault.fixes if device in fix.devices)
    return list(dict.fromkeys(fix.name for fix in (*first, *rest)))
