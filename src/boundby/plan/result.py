"""A training step's parts as a PlanResult: terms that add up, memory, limits, cost."""

from __future__ import annotations

import msgspec

from boundby.model.estimate import Estimate
from boundby.model.plan import PlanLimit, PlanMemory, PlanResult, PlanTerm
from boundby.plan import assumptions, layout_check, limits, memory, training
from boundby.plan.chips import Target
from boundby.plan.layers import Recompute
from boundby.plan.mesh import Axis, Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.operator import ELEMENT_BYTES, dtype_of, wider_unit
from boundby.plan.simulated import simulated_step
from boundby.plan.training import Step, Training

_LEVELS: tuple[Recompute, ...] = ("none", "selective", "full")
_CONVENTION = (
    "6 operations per active weight and token, and attention's scored pairs (causal: the "
    "triangle), over the printed dense peak; recomputation counts in HFU only"
)


def step_range(step: Step, config: ModelConfig) -> Estimate:
    """The range of the step time: from perfect overlap to none, widened by the uncertainty of the
    efficiencies."""
    uncertain = assumptions.EXPERTS_UNCERTAINTY if config.experts else assumptions.STEP_UNCERTAINTY
    spread = 1 + uncertain
    return Estimate(
        low=min(step.overlapped_ns, step.expected_ns) / spread,
        expected=step.expected_ns,
        high=step.serial_ns * spread,
    )


def memory_parts(config: ModelConfig, mesh: Mesh, job: Training) -> list[PlanMemory]:
    """Memory by part on the fullest chip."""
    return memory.parts(
        config,
        mesh,
        training.slice_of(mesh, job),
        recompute=job.recompute,
        micro_batches=training.micro_batches(mesh, job),
        states=job.states,
    )


def memory_bytes(config: ModelConfig, mesh: Mesh, job: Training) -> float:
    return sum(one.bytes for one in memory_parts(config, mesh, job))


def least_recompute(config: ModelConfig, mesh: Mesh, job: Training, target: Target) -> Training:
    """The job with the least recomputation that fits; with full recomputation if none does."""
    for level in _LEVELS:
        tried = msgspec.structs.replace(job, recompute=level)
        if memory_bytes(config, mesh, tried) <= target.memory_bytes:
            break
    return tried


def terms(step: Step) -> list[PlanTerm]:
    """The parts of the step; their exposed times add up to the expected step time."""
    work = step.compute
    found = [
        _term("layers: matrix products", "matmul", work.matmul, "matmul"),
        _term("layers: attention", "attention", work.attention, "attention"),
        _term("layers: memory-bound operators", "memory", work.memory, "memory"),
        _term("output head and loss", "matmul", step.head.ns, "matmul"),
    ]
    found += [
        PlanTerm(
            name=one.name,
            kind="collective",
            axis=one.axis,
            total_ns=one.total_ns,
            exposed_ns=one.exposed_ns,
            formula=one.formula,
        )
        for one in step.traffic
    ]
    found += [
        _term("pipeline bubble", "bubble", step.bubble_ns, "bubble"),
        _term("gradient accumulation", "memory", step.accumulation_ns, "accumulation"),
        _term("optimizer", "memory", step.optimizer_ns, "optimizer"),
        _term("host behind the device", "overhead", step.host_ns, "host"),
        _term("start and end of a step", "overhead", step.fixed_ns, "fixed"),
    ]
    return [one for one in found if one.total_ns > 0]


def _term(name: str, kind: str, ns: float, formula: str) -> PlanTerm:
    return msgspec.convert(
        {"name": name, "kind": kind, "total_ns": ns, "exposed_ns": ns, "formula": formula}, PlanTerm
    )


_GROUPS = {
    "matmul": "compute",
    "attention": "compute",
    "memory": "device memory",
    "collective": "network",
    "bubble": "pipeline bubble",
    "overhead": "overhead",
}


def bound_by(found: list[PlanTerm]) -> str:
    """The resource whose exposed time is largest: at zero cost it would help most."""
    sums: dict[str, float] = {}
    for one in found:
        resource = _GROUPS[one.kind]
        sums[resource] = sums.get(resource, 0.0) + one.exposed_ns
    return max(sums, key=lambda resource: sums[resource])


def plan_training(
    config: ModelConfig,
    mesh: Mesh,
    job: Training,
    target: Target,
    *,
    usd_per_hour: float | None = None,
) -> PlanResult:
    """The time of one step of this job on this mesh."""
    layout_check.check(config, mesh, job, target)
    step = simulated_step(config, mesh, job, target)
    parts = memory_parts(config, mesh, job)
    used = sum(one.bytes for one in parts)
    fits = used <= target.memory_bytes
    seconds = step.expected_ns * 1e-9
    peak = target.peak(f"matmul.{dtype_of(job.precision)}") * mesh.chips
    flops = config.train_flops_per_token(job.sequence) * job.tokens
    per_chip = job.tokens / seconds / mesh.chips
    notes = [*config.described(job.sequence), *_notes(mesh, job, target)]
    if not fits:
        notes.append(_what_would_fit(config, mesh, job, target, used))
    notes += memory.tight(used, target.memory_bytes)
    found = terms(step)
    return PlanResult(
        title=f"{config.name} training, {job.shape} tokens ({job.precision})",
        chip=target.name,
        chips=mesh.chips,
        mesh={**mesh.shown(), "micro_batches": training.micro_batches(mesh, job)},
        step_ns=step_range(step, config),
        overlapped_ns=step.overlapped_ns,
        serial_ns=step.serial_ns,
        bound_by=bound_by(found),
        terms=found,
        tokens=job.tokens,
        tokens_per_s_per_chip=per_chip,
        model_flops=flops,
        hardware_flops=step.hardware_flops,
        mfu=flops / seconds / peak,
        hfu=step.hardware_flops / seconds / peak,
        mfu_convention=_CONVENTION,
        memory=[one for one in parts if one.bytes > 0],
        memory_capacity=target.memory_bytes,
        fits=fits,
        limits=model_limits(config, mesh, job, target),
        usd_per_million_tokens=usd_per_hour / 3600 / per_chip * 1e6 if usd_per_hour else None,
        notes=[*notes, f"recomputation: {job.recompute}"],
    )


def _notes(mesh: Mesh, job: Training, target: Target) -> list[str]:
    """Notes on unexpected properties of this chip."""
    notes = wider_unit(target, job.precision)
    slices = -(-mesh.chips // target.fabric.domain)
    if target.is_tpu and slices > 1:
        notes.append(
            f"{mesh.chips} chips are {slices} pods of {target.fabric.domain}, "
            "joined by the network of the data center"
        )
    return notes


def _what_would_fit(
    config: ModelConfig, mesh: Mesh, job: Training, target: Target, used: float
) -> str:
    options = {
        "recompute=full": (mesh, msgspec.structs.replace(job, recompute="full")),
        "a micro-batch of 1": (mesh, msgspec.structs.replace(job, micro_batch=1.0)),
        "zero=3 over all replicas": (
            msgspec.structs.replace(mesh, fsdp=mesh.replicas, data=1, zero=3),
            job,
        ),
    }
    fitting = [
        name
        for name, (other, changed) in options.items()
        if memory_bytes(config, other, changed) <= target.memory_bytes
    ]
    advice = " or ".join(fitting) or f"about {used / target.memory_bytes * mesh.chips:.0f} chips"
    return (
        f"does not fit: {used / 1e9:.0f} GB on a chip of {target.memory_bytes / 1e9:.0f} GB; "
        f"{advice} would"
    )


def model_limits(config: ModelConfig, mesh: Mesh, job: Training, target: Target) -> list[PlanLimit]:
    """The limits of this job: sizes beyond which another resource bounds it."""
    ffn = max(1, config.moe_ffn * config.active_experts if config.experts else config.ffn)
    compute = dtype_of(job.precision)
    found = [
        PlanLimit(
            name="critical batch",
            value=limits.critical_batch(
                target,
                compute=compute,
                weight_bytes=ELEMENT_BYTES[compute],
                experts=config.sparsity,
            ),
            unit="tokens",
            meaning="rows above which a product with large weights is compute-bound",
        ),
        PlanLimit(
            name="tensor-parallel limit",
            value=limits.tensor_limit(
                target, ffn, limits.axis_rate(mesh, "tensor", target), compute=compute
            ),
            unit="ways",
            meaning="above it the layers' transfers take longer than their products",
        ),
    ]
    holders = mesh.holders
    if holders.replicas > 1:
        axis: Axis = "fsdp" if holders.fsdp > 1 else "data"
        rate = limits.axis_rate(holders, axis, target)
        found.append(
            PlanLimit(
                name="data-parallel limit",
                value=limits.data_parallel_limit(target, rate, compute=compute),
                unit="tokens",
                meaning="tokens per chip and micro-batch below which weights or gradients show",
            )
        )
    if mesh.context > 1:
        scores = config.heads * config.head_dim
        rate = limits.axis_rate(mesh, "context", target)
        found.append(
            PlanLimit(
                name="context-parallel limit",
                value=limits.context_limit(
                    target, mesh.context, scores, config.kv_elements_per_token, rate
                ),
                unit="tokens",
                meaning="sequence below which keys and values show beside attention",
            )
        )
    if holders.replicas > 1 and mesh.tensor > 1:
        chips = holders.replicas * mesh.tensor
        tokens = job.tokens / training.micro_batches(mesh, job)
        axes = 2 if target.is_tpu else 1  # torus axes for the weights to one for activations
        rate = limits.gather_rate(target)
        found += [
            PlanLimit(
                name="balanced FSDP",
                value=min(float(chips), limits.best_fsdp(tokens, chips, ffn, ratio=axes)),
                unit="ways",
                meaning="FSDP ways at which weights and activations together move the least",
            ),
            PlanLimit(
                name="least batch",
                value=limits.mixed_batch(target, ffn, rate, axes=axes, compute=compute),
                unit="tokens",
                meaning="tokens per chip and micro-batch below which no such mix hides both",
            ),
        ]
    return found
