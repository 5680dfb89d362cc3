"""Bytes on the fullest chip: weights, gradients, optimizer states, activations, buffers."""

from __future__ import annotations

import functools

from boundby.model import Record
from boundby.model.plan import PlanMemory
from boundby.plan import assumptions
from boundby.plan.layers import Recompute, Slice
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig


class States(Record, frozen=True, kw_only=True):
    """Bytes per parameter: 16-bit weights, gradients, and optimizer states.

    Adam with float32 master weights: 2 + 4 + 12 (Megatron) or, with float32 parameters and 16-bit
    copies gathered when needed (FSDP), 4 + 4 + 8, of which all is sharded.
    """

    weights: float = 2.0
    gradients: float = 4.0
    optimizer: float = 12.0


class WeightsPerChip(Record, frozen=True, kw_only=True):
    """Parameters that one chip computes with, before any sharding over replicas."""

    dense: float
    experts: float

    @property
    def total(self) -> float:
        return self.dense + self.experts


@functools.lru_cache(maxsize=4096)
def weights_per_chip(config: ModelConfig, mesh: Mesh) -> WeightsPerChip:
    """Weights of the fullest pipeline stage on one chip."""
    experts = config.moe_layers * config.expert_params(config.experts)
    embedding = config.vocab * config.hidden
    layers = config.params - config.vocab_params - experts
    split = mesh.tensor * mesh.pipeline
    tables = embedding if mesh.pipeline > 1 else config.vocab_params
    spread = mesh.expert if mesh.expert > 1 else mesh.tensor
    return WeightsPerChip(
        dense=layers / split + tables / mesh.tensor, experts=experts / (spread * mesh.pipeline)
    )


@functools.lru_cache(maxsize=4096)
def activation_bytes(config: ModelConfig, part: Slice, recompute: Recompute, *, moe: bool) -> float:
    """Bytes that one layer keeps of one micro-batch for its backward pass.

    Korthikanti 2022: s b h (10 + 24/t + 5 a s/(h t)) for a plain layer with dropout, all of it
    over t with sequence parallelism; the last term not with fused attention.
    """
    hidden, tokens, split = config.hidden, part.tokens, part.tensor
    outer = part.outer_tokens / tokens
    if recompute == "full":
        return 2 * hidden * tokens * outer
    attention = (config.heads + 2 * config.kv_heads) * config.head_dim + config.heads * (
        config.latent.value_dim if config.latent else config.head_dim
    )
    wide = config.ffn * (3 if config.gated else 2) / split
    inputs = 0.0
    if moe:
        wide = config.moe_ffn * (3 if config.gated else 2)
        wide *= config.active_experts / split + config.shared_experts / split
        inputs = 2 * config.active_experts * hidden / split
    kept = 2 * (attention / split + wide + inputs)
    kept += 4 * hidden * outer * 2  # the inputs of both norms and both first products
    if recompute == "selective":
        kept -= 2 * wide / (3 if config.gated else 2)
    if part.attention != "fused" and recompute == "none":
        kept += 5 * config.heads * part.sequence / split
    return kept * tokens


def parts(
    config: ModelConfig,
    mesh: Mesh,
    part: Slice,
    *,
    recompute: Recompute,
    micro_batches: int,
    states: States,
) -> list[PlanMemory]:
    """Memory by part on the fullest chip."""
    mine = weights_per_chip(config, mesh)
    replicas = mesh.holders.fsdp
    expert_replicas = max(1.0, replicas * mesh.tensor / mesh.expert)

    def sharded(per_param: float, level: int) -> float:
        over = replicas if mesh.zero >= level else 1
        over_experts = expert_replicas if mesh.zero >= level else 1
        return per_param * (mine.dense / over + mine.experts / over_experts)

    in_flight = float(min(micro_batches, mesh.pipeline))
    if mesh.pipeline > 1 and mesh.interleave > 1:
        in_flight = in_flight * (1 + (mesh.pipeline - 1) / (mesh.pipeline * mesh.interleave))
    per_stage = 1 / mesh.pipeline
    dense_layers = config.layers - config.moe_layers
    one = activation_bytes(config, part, recompute, moe=False)
    one_moe = activation_bytes(config, part, recompute, moe=True) if config.moe_layers else 0.0
    activations = (one * dense_layers + one_moe * config.moe_layers) * per_stage * in_flight
    if recompute == "full":  # one layer is complete while it is recomputed
        activations += activation_bytes(config, part, "none", moe=bool(config.moe_layers))
    logits = part.tokens * config.vocab / part.tensor * assumptions.LOGIT_BYTES * config.head
    gathered = 0.0
    if replicas > 1 and mesh.zero == 3:
        gathered = 2 * 2 * mine.total / max(1.0, config.layers / mesh.pipeline)
    return [
        PlanMemory(name="weights", bytes=sharded(states.weights, 3)),
        PlanMemory(name="gradients", bytes=sharded(states.gradients, 2)),
        PlanMemory(name="optimizer states", bytes=sharded(states.optimizer, 1)),
        PlanMemory(name="activations", bytes=activations),
        PlanMemory(name="logits", bytes=logits if mesh.pipeline == 1 else 0.0),
        PlanMemory(name="gathered weights", bytes=gathered),
        PlanMemory(name="framework", bytes=assumptions.FRAMEWORK_BYTES),
    ]


def tight(used: float, capacity: float) -> list[str]:
    """A note if a layout that fits may not, within the uncertainty of its memory."""
    if not capacity / (1 + assumptions.MEMORY_UNCERTAINTY) < used <= capacity:
        return []
    share = f"{assumptions.MEMORY_UNCERTAINTY:.0%}"
    return [f"memory is estimated within {share}: {used / 1e9:.0f} GB may be more than fits"]
