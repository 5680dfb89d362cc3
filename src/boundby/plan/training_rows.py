"""Rows of a table of published training measurements, as jobs that `plan` can predict.

Columns as in training_measured.csv and in the single-node table. What a source states once for all
its rows (attention kernel, framework, optimizer) is in `_FACTS`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import NamedTuple

import msgspec

from boundby.plan import assumptions, chips, memory, models
from boundby.plan.chips import Target
from boundby.plan.layers import Attention, Recompute
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import Latent, ModelConfig
from boundby.plan.operator import DTYPES
from boundby.plan.row_values import Row, RowError, axis_size, half, number, prefix, required
from boundby.plan.training import Training


class Memory(NamedTuple):
    """Memory of the fullest chip, as printed, in `unit_bytes`."""

    value: float
    unit: str
    unit_bytes: float


class Case(NamedTuple):
    """One row as plan's own inputs, and what was measured."""

    id: str
    source: str
    config: ModelConfig
    mesh: Mesh
    job: Training
    target: Target
    measured_s: float | None
    memory: Memory | None


class _Facts(NamedTuple):
    """How a source ran its jobs, as it states."""

    attention: Attention = "fused"
    megatron: bool = (
        False  # Megatron with Transformer Engine: overlap of tensor parallelism, tuning
    )
    compiled: bool = False
    fused_accumulation: bool = True  # not BLOOM's BF16 optimizer, which adds them on their own
    states: memory.States = memory.States()


# FSDP in PyTorch gathers 16-bit weights and reduces 16-bit gradients of float32 parameters.
_FSDP_STATES = memory.States(weights=4.0, gradients=4.0, optimizer=8.0)
_FACTS = {
    # Megatron before fused attention: scores are written (the papers and repositories of 2021-22).
    "sc21": _Facts(attention="softmax"),
    "korth": _Facts(attention="softmax"),
    "bloom": _Facts(attention="softmax", fused_accumulation=False),
    "vtrain": _Facts(attention="softmax"),
    "vts": _Facts(attention="softmax"),
    "mosaic": _Facts(states=_FSDP_STATES),
    "titan": _Facts(states=_FSDP_STATES, compiled=True),
    "fms": _Facts(states=_FSDP_STATES, compiled=True),
    "bridge": _Facts(megatron=True),
    "dgxc": _Facts(megatron=True),
    "nemo": _Facts(megatron=True),
    "trn1": _Facts(compiled=True),
}
_HEAD_WIDTH = 128  # the head size of most published models
_MLA = Latent(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)


def _text(row: Row) -> str:
    return row.get("notes") or ""


def _notes(row: Row) -> dict[str, str]:
    pairs = (part.partition("=") for part in _text(row).split(";"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def model_of(row: Row) -> ModelConfig:
    """The layer sizes that a row states.

    Heads that are not stated are 128 wide, layers follow from the number of parameters.
    """
    notes, text = _notes(row), _text(row)
    if not number(row, "hidden") and (known := models.find_model(row.get("model", ""))):
        return known
    hidden = required(row, "hidden")
    heads = round(number(row, "heads") or max(1, hidden // _HEAD_WIDTH))
    experts = round(number(row, "experts") or 0)
    ffn = round(number(row, "ffn") or 0) or round(number(row, "moe_ffn") or 4 * hidden)
    windowed, window = 0.0, None
    if found := re.search(r"window (\d+)", text):
        window = int(found[1])
        windowed = 0.5 if "every other layer" in text else 5 / 6
    latent = _MLA if "attn=MLA" in text else None
    dense = re.search(r"first (?:(\d+) )?layers? dense", text)
    shared = re.search(r"shared_experts=(\d+)", text)
    bare = ModelConfig(
        name=row.get("model", "model"),
        layers=round(number(row, "layers") or 1),
        hidden=hidden,
        heads=heads,
        kv_heads=round(number(row, "kv_heads") or heads),
        head_dim=round(number(notes, "head_dim") or hidden // heads),
        ffn=ffn,
        vocab=_padded(required(row, "vocab")),
        gated=notes.get("mlp", "plain") == "gated",
        tied="tied embeddings" in text,
        experts=experts,
        active_experts=required(row, "active_experts") if experts else 0,
        moe_ffn=round(number(row, "moe_ffn") or ffn) if experts else 0,
        shared_experts=int(shared[1]) if shared else 0,
        dense_layers=int(dense[1] or 1) if dense else 0,
        moe_every=2 if "every 2nd layer MoE" in text else 1,
        window=window,
        windowed=windowed,
        latent=latent,
    )
    if number(row, "layers"):
        return bare
    params = number(row, "params_b")
    if experts or not params:
        raise RowError("no layers")
    each = bare.attention_params + bare.dense_ffn_params
    layers = max(1, round((params * 1e9 - bare.vocab_params) / each))
    return msgspec.structs.replace(bare, layers=layers)


def _padded(vocab: int) -> int:
    """Training frameworks pad the vocabulary, on one chip too."""
    return assumptions.PADDED * math.ceil(vocab / assumptions.PADDED)


def target_of(row: Row) -> Target:
    """The chip of a row; notes that change it (power limit, network) are applied."""
    found = re.search(r"(\d+) Gbps node-node", _text(row))
    return _variant(row.get("chip") or "", float(found[1]) if found else None)


@functools.cache
def _variant(name: str, node_gbps: float | None) -> Target:
    target = chips.find("h100-sxm" if "500w" in name else name)
    if "500w" in name:
        # HBM2e at 2.4 TB/s, and a limit of 500 instead of 700 W.
        slower = assumptions.power_share(500 / 700)
        rates = {unit: slower * target.sustained_rate(unit) for unit in _UNITS}
        roofs = [
            msgspec.structs.replace(roof, value=2.4e12) if roof.name == "memory.dram" else roof
            for roof in target.machine.roofs
        ]
        machine = msgspec.structs.replace(target.machine, roofs=roofs)
        target = dataclasses.replace(target, machine=machine, sustained=rates, memory_bytes=96e9)
    if node_gbps:
        egress = node_gbps * 1e9 / 8 / target.fabric.domain
        fabric = msgspec.structs.replace(target.fabric, egress=egress)
        target = dataclasses.replace(target, fabric=fabric)
    return target


_UNITS = ("matmul.bfloat16", "matmul.float16", "matmul.float8")


def mesh_of(row: Row, devices: int) -> Mesh:
    """The layout; unless stated, optimizer states are sharded over all replicas."""
    tensor = axis_size(row, "tp")
    pipeline = axis_size(row, "pp")
    context = axis_size(row, "cp")
    replicas = max(1, devices // (tensor * pipeline * context))
    sharding, _, size = row.get("fsdp", "").strip().lower().partition(":")
    level = re.fullmatch(r"zero[-_ ]?([123])", sharding)
    zero = int(level[1]) if level else 3 if sharding.startswith(("fsdp", "full_shard")) else 1
    fsdp = min(replicas, max(1, int(size))) if size.isdigit() else replicas
    if sharding == "ddp":
        zero, fsdp = 1, replicas
    if sharding in ("hsdp", "hybrid_shard"):
        zero, fsdp = 3, min(8, replicas)
    stated = row.get("sp", "")
    sequence = stated == "1" if stated else prefix(row["id"]) not in _NO_SEQUENCE
    return Mesh(
        data=max(1, replicas // fsdp),
        fsdp=fsdp,
        zero=zero,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        interleave=axis_size(row, "vpp"),
        expert=axis_size(row, "ep"),
        sequence=sequence or bool(stated and tensor > 1 and "bridge" in row["id"]),
    )


# Published before sequence parallelism (Korthikanti 2022).
_NO_SEQUENCE = ("sc21", "vtrain", "vts", "bloom")


def case_of(row: Row) -> Case:
    """A row of either training table; RowError if a size is missing.

    A row of memory alone needs no batch: its pipeline is full.
    """
    single = "step_ms" in row
    measured = number(row, "step_ms" if single else "measured_step_s")
    held = _memory(row)
    if measured is None and held is None:
        raise RowError("no measured step time")
    source = prefix(row["id"])
    facts = _FACTS.get(source, _Facts())
    config = model_of(row)
    target = target_of(row)
    count = required(row, "gpus" if single else "chips")
    per_chip = 2 if "2 per chip" in _text(row) else 1
    mesh = mesh_of(row, count * per_chip)
    joined = per_chip > 1 and target.is_tpu and mesh.fsdp % per_chip == 0
    if joined:  # both devices of a chip share its links: plan whole chips
        mesh = msgspec.structs.replace(mesh, fsdp=mesh.fsdp // per_chip)
    elif per_chip > 1:
        target = half(target)
    sequence = required(row, "seq_len")
    micro = number(row, "micro_batch") or None
    batch = _batch(row, sequence, single=single)
    if batch is None:
        if measured is not None:
            raise RowError("no global_batch_tokens")
        batch = (micro or 1.0) * mesh.replicas * mesh.pipeline
    if micro is None:
        micro = 1.0 if mesh.pipeline > 1 else max(1.0, batch / mesh.replicas)
    if joined:
        micro *= per_chip
    micro = min(micro, batch / mesh.replicas)
    stated = row.get("recompute", "unknown").strip().lower()
    # Not stated: published benchmarks are tuned to recompute as little as possible.
    recompute: Recompute = (
        stated if stated in ("none", "selective", "full") else "none"  # type: ignore[assignment]
    )
    if recompute == "selective" and "remat" in _text(row):
        recompute = "full"  # MaxText policies keep layer inputs and some projections only
    job = Training(
        sequence=sequence,
        batch=batch,
        micro_batch=micro,
        precision=_precision(row),
        recompute=recompute,
        attention=facts.attention,
        tensor_overlap=facts.megatron,
        tuned=facts.megatron and mesh.zero != 3 and not config.experts,
        compiled=facts.compiled,
        fused_accumulation=facts.fused_accumulation,
        capacity=_capacity(row),
        states=facts.states,
    )
    return Case(
        id=row["id"],
        source=source,
        config=config,
        mesh=mesh,
        job=job,
        target=target,
        measured_s=measured / 1e3 if measured and single else measured,
        # Saved memory depends on what is recomputed and on the micro-batch.
        memory=held if stated != "unknown" and (number(row, "micro_batch") or single) else None,
    )


def _precision(row: Row) -> str:
    """The precision of the products, also of "fp8-hybrid" or "FP8 (tensorwise)"."""
    stated = (row.get("dtype") or "bf16").strip().lower()
    return next((name for name in DTYPES if re.match(rf"{name}\b|{name}_", stated)), stated)


def _capacity(row: Row) -> float | None:
    """Each expert's capacity relative to its even share of the tokens; None if no token is
    dropped."""
    found = re.search(r"capacity factor ([\d.]+)", _text(row))
    return float(found[1]) if found else None


def _batch(row: Row, sequence: int, *, single: bool) -> float | None:
    """Sequences of a step."""
    if single:
        return float(required(row, "global_batch_seqs"))
    tokens = number(row, "global_batch_tokens")
    return tokens / sequence if tokens else None


def _memory(row: Row) -> Memory | None:
    value = number(row, "mem_gib")
    if not value:
        return None
    in_gb = "mem in GB" in _text(row)
    return Memory(value, "GB" if in_gb else "GiB", 1e9 if in_gb else 2.0**30)
