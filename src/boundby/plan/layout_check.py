"""Whether a layout can run, and if not, what would be possible."""

from __future__ import annotations

import math

from boundby.model.errors import BoundbyError
from boundby.plan.chips import Target
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.training import Training


def check(config: ModelConfig, mesh: Mesh, job: Training, target: Target) -> None:
    """Raise for a layout that cannot run, with what would be possible."""
    if config.heads % mesh.tensor:
        raise BoundbyError(
            f"{config.heads} attention heads do not divide over tensor={mesh.tensor}: "
            f"tensor={_largest_divisor(config.heads, mesh.tensor)} would"
        )
    if mesh.pipeline * mesh.interleave > config.layers:
        most = config.layers // mesh.pipeline
        would = f"interleave={most}" if most else f"at most pipeline={config.layers}"
        raise BoundbyError(
            f"{config.layers} layers do not fill pipeline={mesh.pipeline} with "
            f"interleave={mesh.interleave}: {would} would"
        )
    if mesh.interleave > 1 and mesh.pipeline == 1:
        raise BoundbyError(
            f"interleave={mesh.interleave} divides pipeline stages: pipeline=2 or more would"
        )
    if mesh.expert > 1 and not config.experts:
        raise BoundbyError(f"{config.name} has no experts: expert=1 is possible")
    if mesh.expert > 1 and config.experts % mesh.expert:
        raise BoundbyError(
            f"{config.experts} experts do not divide over expert={mesh.expert}: "
            f"expert={_largest_divisor(config.experts, mesh.expert)} would"
        )
    others = mesh.chips // mesh.pipeline
    if mesh.expert > others or others % mesh.expert:
        raise BoundbyError(
            f"expert={mesh.expert} spreads over the {others} chips of the other axes: "
            f"expert={math.gcd(mesh.expert, others)}, or a multiple of {mesh.expert} chips, would"
        )
    if job.batch < mesh.replicas * mesh.context and job.batch < mesh.replicas:
        raise BoundbyError(
            f"a batch of {job.batch:g} sequences does not fill {mesh.replicas} replicas: "
            f"at most data*fsdp={int(job.batch)} would, or more tensor and context ways"
        )
    if job.sequence % mesh.context:
        ways = _largest_divisor(job.sequence, mesh.context)
        raise BoundbyError(
            f"a sequence of {job.sequence} tokens does not divide over context={mesh.context}: "
            f"context={ways}, or a multiple of {mesh.context} tokens, would"
        )
    _check_batch(mesh, job)
    slices = target.fabric.domain if target.is_tpu else 0
    if slices and mesh.tensor * mesh.context > slices:
        raise BoundbyError(
            f"tensor*context={mesh.tensor * mesh.context} exceeds the pod of {slices} chips"
        )


def _largest_divisor(whole: int, most: int) -> int:
    return max(ways for ways in range(1, min(whole, most) + 1) if whole % ways == 0)


def _check_batch(mesh: Mesh, job: Training) -> None:
    """Replicas get equal numbers of sequences, in whole micro-batches."""
    rows = job.batch / mesh.replicas
    if job.batch % mesh.replicas:
        less = int(rows) * mesh.replicas
        raise BoundbyError(
            f"a batch of {job.batch:g} sequences does not divide over {mesh.replicas} replicas: "
            f"{less} or {less + mesh.replicas} would"
        )
    if job.micro_batch > rows or rows % job.micro_batch:
        fits = [one for one in range(1, int(rows) + 1) if rows % one == 0]
        near = max((one for one in fits if one <= job.micro_batch), default=fits[0])
        raise BoundbyError(
            f"a micro-batch of {job.micro_batch:g} does not divide the {rows:g} sequences of each "
            f"replica: {near} would"
        )
