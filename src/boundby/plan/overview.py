"""Additional content of a plan's page: roofs, scaling over chips, formulas."""

from __future__ import annotations

import msgspec

from boundby.model.errors import BoundbyError
from boundby.model.plan import PlanResult, PlanRoof
from boundby.plan import layout_check, limits, terms, training
from boundby.plan.chips import Target
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.operator import dtype_of
from boundby.plan.simulated import simulated_step
from boundby.plan.training import Step, Training

# Numbers of chips on either side of the plan's own, each twice the last.
_FEWER, _MORE = 3, 5


def with_overview(
    result: PlanResult,
    config: ModelConfig,
    mesh: Mesh,
    job: Training,
    target: Target,
) -> PlanResult:
    """The plan of a training step with its roofs, scaling and formulas."""
    step = simulated_step(config, mesh, job, target)
    return msgspec.structs.replace(
        with_formulas(result),
        peak_flops=target.peak(f"matmul.{dtype_of(job.precision)}"),
        roofs=roofs(config, mesh, job, target, step),
        scaling=scaling(config, mesh, job, target),
    )


def with_formulas(result: PlanResult) -> PlanResult:
    """The plan with the formulas of its parts and of its limits."""
    names = [term.formula for term in result.terms]
    names += [limit.name.lower().replace(" ", "-") for limit in result.limits]
    known = [name for name in dict.fromkeys(names) if name in terms.names()]
    return msgspec.structs.replace(result, formulas={name: terms.explain(name) for name in known})


def roofs(
    config: ModelConfig, mesh: Mesh, job: Training, target: Target, step: Step
) -> list[PlanRoof]:
    """Device memory with a layer's largest product, and each axis with its traffic."""
    part = training.slice_of(mesh, job)
    wide = max(config.ffn, config.moe_ffn) // mesh.tensor
    found = [
        PlanRoof(
            name="device memory, largest product of a layer",
            bytes_per_s=target.memory_rate,
            intensity=limits.intensity(part.tokens, config.hidden, max(1, wide)),
        )
    ]
    flops = step.hardware_flops / mesh.chips
    for axis in dict.fromkeys(one.axis for one in step.traffic):
        rate = limits.axis_rate(mesh.holders if axis == "fsdp" else mesh, axis, target)
        seconds = sum(one.total_ns for one in step.traffic if one.axis == axis) * 1e-9
        intensity = flops / (seconds * rate) if seconds else None
        found.append(PlanRoof(name=f"network, {axis} axis", bytes_per_s=rate, intensity=intensity))
    return found


def scaling(
    config: ModelConfig, mesh: Mesh, job: Training, target: Target
) -> list[tuple[int, float]]:
    """Tokens/s per chip at the same batch with more or fewer data-parallel chips."""
    points = []
    for power in range(-_FEWER, _MORE + 1):
        ways = mesh.fsdp * 2**power
        if ways != int(ways) or ways < 1:
            continue
        other = msgspec.structs.replace(mesh, fsdp=int(ways))
        rows = min(job.micro_batch, job.batch / other.replicas)
        tried = msgspec.structs.replace(job, micro_batch=rows)
        try:
            layout_check.check(config, other, tried, target)
        except BoundbyError:
            continue
        seconds = training.plan_step(config, other, tried, target).expected_ns * 1e-9
        points.append((other.chips, job.tokens / seconds / other.chips))
    return points
