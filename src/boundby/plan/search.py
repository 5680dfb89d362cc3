"""Layouts of a job on a number of chips: all that can run and fit, the fastest first; and
sweeps."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from boundby.model.errors import BoundbyError
from boundby.model.plan import PlanChoice, PlanSearch
from boundby.plan import memory, training
from boundby.plan.chips import Target
from boundby.plan.layers import Recompute
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.operator import dtype_of
from boundby.plan.result import least_recompute, memory_bytes, step_range, terms
from boundby.plan.simulated import simulated_step
from boundby.plan.training import Training

_MICRO_BATCHES = (1.0, 2.0, 4.0, 8.0)  # tried, and larger ones of short sequences
_LARGEST_MICRO_BATCH = 65_536  # tokens
_INTERLEAVES = (1, 2, 4)  # tried
_DOUBLINGS = 12  # of the number of chips, tried if the model does not fit


def divisors(number: int, most: int) -> list[int]:
    return [one for one in range(1, min(number, most) + 1) if number % one == 0]


def meshes(config: ModelConfig, chips: int, target: Target, sequence: int) -> Iterator[Mesh]:
    """Every layout of the five axes that the model's sizes allow."""
    most_tensor = target.fabric.domain if target.fabric.kind != "torus" else 64
    for tensor in divisors(chips, min(most_tensor, config.heads)):
        if config.heads % tensor:
            continue
        for pipeline in divisors(chips // tensor, config.layers):
            if 2 * pipeline > config.layers and pipeline > 1:
                continue
            for context in divisors(chips // (tensor * pipeline), max(1, sequence // 8192)):
                replicas = chips // (tensor * pipeline * context)
                # States of one replica are sharded over its context axis at most.
                for zero in (1, 3) if replicas * context > 1 else (1,):
                    for expert in _experts(config, tensor * context * replicas):
                        for interleave in _INTERLEAVES if pipeline > 1 else (1,):
                            if interleave > 1 and 2 * pipeline * interleave > config.layers:
                                continue
                            yield Mesh(
                                fsdp=replicas,
                                zero=zero,
                                tensor=tensor,
                                pipeline=pipeline,
                                context=context,
                                interleave=interleave,
                                expert=expert,
                            )


def _experts(config: ModelConfig, chips: int) -> list[int]:
    if not config.experts:
        return [1]
    return [one for one in divisors(config.experts, chips) if chips % one == 0]


def micro_batches(rows: float, sequence: int) -> list[float]:
    """Sizes to try for so many sequences of a replica, which they divide."""
    sizes = [*_MICRO_BATCHES]
    while 2 * sizes[-1] * sequence <= _LARGEST_MICRO_BATCH:
        sizes.append(2 * sizes[-1])
    return [one for one in sizes if one <= rows and rows % one == 0]


def best_micro_batch(
    config: ModelConfig, mesh: Mesh, job: Training, target: Target, recompute: Recompute | None
) -> float:
    """The micro-batch with which this layout is fastest, of those that fit; with the least
    recomputation unless that is stated."""
    found = [(math.inf, 1.0)]
    for micro in micro_batches(job.batch / mesh.replicas, job.sequence):
        tried = msgspec.structs.replace(job, micro_batch=micro)
        if recompute:
            tried = msgspec.structs.replace(tried, recompute=recompute)
        else:
            tried = least_recompute(config, mesh, tried, target)
        if memory_bytes(config, mesh, tried) <= target.memory_bytes:
            found.append((training.plan_step(config, mesh, tried, target).expected_ns, micro))
    return min(found)[1]


def search(
    config: ModelConfig, job: Training, target: Target, chips: int, *, shown: int = 10
) -> PlanSearch:
    """The fastest layouts that fit, and why the next ones are slower.

    They are ranked by the closed form; those shown are simulated. Micro-batch sizes and
    recomputation are tried too; ZeRO-3 is left out with a pipeline, where every micro-batch would
    gather the weights again.
    """
    found: list[tuple[float, Mesh, Training]] = []
    considered = fitting = 0
    for mesh in meshes(config, chips, target, job.sequence):
        per_replica = job.batch / mesh.replicas
        if per_replica < 1 or (mesh.zero == 3 and mesh.pipeline > 1):
            continue
        for micro in micro_batches(per_replica, job.sequence):
            considered += 1
            tried = least_recompute(
                config, mesh, msgspec.structs.replace(job, micro_batch=micro), target
            )
            if memory_bytes(config, mesh, tried) > target.memory_bytes:
                continue
            fitting += 1
            step = training.plan_step(config, mesh, tried, target)
            found.append((step.expected_ns, mesh, tried))
    if not found:
        raise BoundbyError(_nothing_fits(config, job, target, chips, considered))
    found.sort(key=lambda one: one[0])
    steps = [
        (simulated_step(config, mesh, tried, target), mesh, tried)
        for _, mesh, tried in found[:shown]
    ]
    steps.sort(key=lambda one: one[0].expected_ns)
    choices = [
        _choice(config, mesh, tried, target, step, steps[0][0]) for step, mesh, tried in steps
    ]
    return PlanSearch(
        title=f"{config.name}, {job.shape} tokens ({job.precision})",
        chip=target.name,
        kind="search",
        choices=choices,
        considered=considered,
        fitting=fitting,
        notes=[
            *config.described(job.sequence),
            *memory.tight(choices[0].memory_bytes, target.memory_bytes),
        ],
    )


def _nothing_fits(
    config: ModelConfig, job: Training, target: Target, chips: int, considered: int
) -> str:
    if not considered:
        less = int(job.batch) // chips * chips
        would = f"{less} or {less + chips}" if less else f"{chips}"
        return (
            f"a batch of {job.batch:g} sequences has no layout on {chips} chips: {would} would, "
            "or a number of chips that it divides over"
        )
    least = config.params * 18 / target.memory_bytes
    if least > chips:
        return f"{config.name} does not fit {chips} x {target.name}: about {least:.0f} chips would"
    sequence = job.sequence
    while sequence > 1 and not _fits(config, job, target, chips, sequence):
        sequence //= 2
    would = f"{sequence} would"
    if sequence <= 1:
        more = (chips * 2**power for power in range(1, _DOUBLINGS))
        enough = next((one for one in more if _fits(config, job, target, one, job.sequence)), None)
        would = f"{enough} chips would" if enough else "a smaller model would"
    return (
        f"{config.name} with sequences of {job.sequence} tokens does not fit {chips} x "
        f"{target.name}: {would}"
    )


def _fits(config: ModelConfig, job: Training, target: Target, chips: int, sequence: int) -> bool:
    """Whether any layout has enough memory for one such sequence, with full recomputation."""
    tried = msgspec.structs.replace(job, sequence=sequence, micro_batch=1.0, recompute="full")
    return any(
        memory_bytes(config, mesh, tried) <= target.memory_bytes
        for mesh in meshes(config, chips, target, sequence)
    )


def _choice(
    config: ModelConfig,
    mesh: Mesh,
    job: Training,
    target: Target,
    step: training.Step,
    best: training.Step,
) -> PlanChoice:
    flops = config.train_flops_per_token(job.sequence) * job.tokens
    peak = target.peak(f"matmul.{dtype_of(job.precision)}") * mesh.chips
    return PlanChoice(
        mesh=mesh.shown(),
        chips=mesh.chips,
        micro_batch=job.micro_batch,
        recompute=job.recompute,
        step_ns=step_range(step, config),
        mfu=flops / (step.expected_ns * 1e-9) / peak,
        memory_bytes=memory_bytes(config, mesh, job),
        why=_why(step, best),
    )


def _why(step: training.Step, best: training.Step) -> str:
    """The part that grew most compared with the best layout."""
    if step.expected_ns <= best.expected_ns:
        return "fastest"
    before = {(one.name, one.axis): one.exposed_ns for one in terms(best)}
    grown = max(terms(step), key=lambda one: one.exposed_ns - before.get((one.name, one.axis), 0.0))
    more = grown.exposed_ns - before.get((grown.name, grown.axis), 0.0)
    where = f" ({grown.axis})" if grown.axis else ""
    return f"{grown.name}{where} +{more / 1e6:.0f} ms"


def sweep(config: ModelConfig, job: Training, target: Target, counts: list[int]) -> PlanSearch:
    """The best layout for each number of chips, at the same batch."""
    choices = []
    reasons: dict[int, str] = {}
    considered = fitting = 0
    for chips in counts:
        try:
            found = search(config, job, target, chips, shown=1)
        except BoundbyError as error:
            reasons[chips] = str(error)
            continue
        considered += found.considered
        fitting += found.fitting
        choices.append(msgspec.structs.replace(found.choices[0], why=""))
    if not choices:
        raise BoundbyError(reasons[counts[-1]])
    return PlanSearch(
        title=f"{config.name}, {job.shape} tokens ({job.precision})",
        chip=target.name,
        kind="sweep",
        choices=choices,
        considered=considered,
        fitting=fitting,
        notes=[
            *config.described(job.sequence),
            *(f"{chips} chips are left out: {reason}" for chips, reason in reasons.items()),
        ],
    )
