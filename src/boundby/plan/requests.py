"""Turns requests of users into plans: the entry of the command line and of Python."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec

from boundby.model.errors import BoundbyError
from boundby.model.plan import PlanResult, PlanSearch
from boundby.plan import (
    assumptions,
    chips,
    layout_check,
    models,
    operator,
    scaled,
    served,
    serving,
)
from boundby.plan import mesh as meshes
from boundby.plan import search as searches
from boundby.plan.chips import Target
from boundby.plan.layers import Attention
from boundby.plan.mesh import Mesh
from boundby.plan.model_config import ModelConfig
from boundby.plan.overview import with_formulas, with_overview
from boundby.plan.result import least_recompute, plan_training
from boundby.plan.training import Training

_DEFAULT_SEQUENCE = 4096  # tokens
_SUFFIXES = {"k": 1024, "m": 1024**2, "": 1}


def parse_batch(text: str, sequence: int, replicas: int = 1) -> float:
    """Sequences from "512", or from tokens as in "4M-tokens".

    Tokens that are no whole number of sequences are rounded, to a multiple of the replicas where
    each has one at least.
    """
    found = re.fullmatch(r"(\d+\.?\d*(?:e\d{1,2})?)([kKmM]?)([- ]?tokens?)?", text.strip())
    amount = float(found[1]) * _SUFFIXES[found[2].lower()] if found else 0.0
    if not found or (found[2] and not found[3]):
        meant = "512 (sequences) or 4M-tokens"
        if found:
            meant = f"{text.strip()}-tokens, or {amount:.0f} for sequences"
        raise BoundbyError(f"cannot read a batch of {text!r}: write {meant}")
    if not found[3]:
        return amount
    rows = amount / sequence
    step = replicas if rows != int(rows) and rows >= replicas else 1
    return max(1.0, step * round(rows / step))


def parse_range(text: str) -> list[int]:
    """The numbers of chips in "chips=8..4096", doubling, or from "8,16,64"."""
    text = text.removeprefix("chips=")
    found = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if found:
        low, high = int(found[1]), int(found[2])
        counts = []
        while low and low <= high:
            counts.append(low)
            low *= 2
        if counts:
            return counts
    if re.fullmatch(r"\d+(,\d+)*", text) and all(int(one) for one in text.split(",")):
        return [int(one) for one in text.split(",")]
    raise BoundbyError(f"cannot read a sweep of {text!r}: write chips=8..4096")


def _sequence(config: ModelConfig, stated: int | None) -> int:
    """Tokens of a sequence: as stated, those of one image, or as many as the model has positions
    for."""
    longest = min(_DEFAULT_SEQUENCE, config.positions or _DEFAULT_SEQUENCE)
    return stated or config.tokens or longest


def _job(
    sequence: int,
    batch: str | float | None,
    replicas: int,
    *,
    micro_batch: float | None = None,
    **program: Any,
) -> Training:
    """The job; without a batch, of one sequence for each replica."""
    whole = parse_batch(str(batch), sequence, replicas) if batch is not None else float(replicas)
    if whole <= 0 or (micro_batch is not None and not 0 < micro_batch < math.inf):
        raise BoundbyError("a batch and a micro-batch are more than 0 sequences")
    return Training(sequence=sequence, batch=whole, micro_batch=micro_batch or 1.0, **program)


def plan(
    model: str | ModelConfig,
    chip: str | Target,
    mesh: str | Mesh | None = None,
    *,
    chips_count: int | None = None,
    batch: str | float | None = None,
    sequence: int | None = None,
    micro_batch: float | None = None,
    precision: str = "bf16",
    recompute: str = "auto",
    overlap: bool = True,
    compiled: bool = False,
    attention: Attention = "fused",
    usd_per_hour: float | None = None,
) -> PlanResult:
    """What one training step of a model costs on a mesh of chips.

        boundby.plan("llama-3.1-8b", "h100", "fsdp=64", batch="4M-tokens")

    `model` is a name of the table, a Hugging Face config.json or a `ModelConfig`; `chip` a name or
    a saved machine; `mesh` ways per axis. Without a mesh the fastest layout of `chips_count` chips
    that fits is planned, without a `micro_batch` the fastest size that fits. `batch` counts
    sequences, or tokens; a sequence has 4096 tokens, fewer if
    the model has fewer positions, or those of one image, unless `sequence` says otherwise.
    `compiled` programs have no host time per operator. `attention` is "fused", "softmax" (its
    softmax alone is fused) or "eager" (separate operators). Times of the result are in ns.
    """
    config = models.find(model) if isinstance(model, str) else model
    target = chips.find(chip) if isinstance(chip, str) else chip
    sequence, recompute = _sequence(config, sequence), recompute.lower()
    if recompute not in ("none", "selective", "full", "auto"):
        raise BoundbyError(f"recompute is none, selective, full or auto, not {recompute}")
    program: dict[str, Any] = {
        "micro_batch": micro_batch,
        "precision": precision,
        "overlap": overlap,
        "compiled": compiled,
        "attention": attention,
    }
    if mesh is None:
        count = chips_count or 1
        job = _job(sequence, batch, count, **program)
        best = searches.search(config, job, target, count, shown=1).choices[0]
        layout = meshes.of_axes(best.mesh)
        job = msgspec.structs.replace(
            job,
            micro_batch=micro_batch or best.micro_batch,
            recompute=best.recompute,
        )
        if recompute == "auto":
            return _planned(config, layout, job, target, usd_per_hour)
    else:
        layout = meshes.parse(mesh) if isinstance(mesh, str) else mesh
        if chips_count and chips_count != layout.chips:
            raise BoundbyError(f"the mesh has {layout.chips} chips, not {chips_count}")
        job = _job(sequence, batch, layout.replicas, **program)
        if micro_batch is None:
            layout_check.check(config, layout, job, target)
            stated: Any = None if recompute == "auto" else recompute
            micro = searches.best_micro_batch(config, layout, job, target, stated)
            job = msgspec.structs.replace(job, micro_batch=micro)
    if recompute == "auto":
        job = least_recompute(config, layout, job, target)
    else:
        job = msgspec.structs.replace(job, recompute=recompute)
    return _planned(config, layout, job, target, usd_per_hour)


def _planned(
    config: ModelConfig, mesh: Mesh, job: Training, target: Target, usd_per_hour: float | None
) -> PlanResult:
    result = plan_training(config, mesh, job, target, usd_per_hour=usd_per_hour)
    return with_overview(result, config, mesh, job, target)


def search(
    model: str,
    chip: str,
    counts: list[int],
    *,
    batch: str | None,
    sequence: int | None,
    is_sweep: bool,
    **program: Any,
) -> PlanSearch:
    """The fastest layouts on this many chips, or the best one for each number of a sweep.

    `program` are the fields of `Training` that say how the program runs the job.
    """
    config, target = models.find(model), chips.find(chip)
    sequence = _sequence(config, sequence)
    job = _job(sequence, batch, counts[-1], **program)
    if is_sweep:
        return searches.sweep(config, job, target, counts)
    return searches.search(config, job, target, counts[0])


def plan_matmul(shape: str, chip: str, count: int, precision: str) -> PlanResult:
    """One matrix product, its inner dimension split over the chips."""
    found = operator.plan_product(
        operator.parse_shape(shape), chips.find(chip), chips=count, precision=precision
    )
    return with_formulas(found)


def plan_serving(
    model: str,
    chip: str,
    *,
    count: int | None = None,
    mesh: str | None = None,
    batch: str | int = 1,
    input_tokens: int,
    output_tokens: int,
    precision: str = "bf16",
    weights: str | None = None,
    usd_per_hour: float | None = None,
) -> PlanResult:
    """Prefill and decode of one replica on `count` chips, all of them tensor-parallel, or on a
    mesh of tensor and pipeline axes with experts spread over the tensor axis."""
    config, target = models.find(model), chips.find(chip)
    layout = meshes.parse(mesh) if mesh else Mesh(tensor=count or 1)
    sequences = parse_batch(str(batch), input_tokens)
    if sequences != int(sequences) or min(sequences, input_tokens, output_tokens) < 1:
        raise BoundbyError("a service needs a whole batch, a prompt and an output of one at least")
    served.check(config, layout)
    if count and count != layout.chips:
        raise BoundbyError(f"the mesh has {layout.chips} chips, not {count}")
    stored, group = _stored(weights or config.stored or precision)
    service = serving.Service(
        batch=int(sequences),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        expert=layout.expert,
        weights=stored,
        group=group,
        compute=operator.dtype_of(precision),
    )
    if config.stored and not weights:
        note = f"weights in {config.stored}, as they are published; --weights bf16 would change it"
        config = msgspec.structs.replace(config, notes=(*config.notes, note))
    found = served.plan_service(config, service, target, usd_per_hour=usd_per_hour)
    return with_formulas(found)


def _stored(precision: str) -> tuple[str, int]:
    """The dtype of served weights, and how many share their scales if they have 4 bits."""
    if precision.lower() == "int4":
        return "int4", assumptions.INT4_GROUP
    stored = operator.dtype_of(precision)
    return ("int4", assumptions.NVFP4_GROUP) if stored == "float4" else (stored, 0)


def plan_saved(path: str, chip: str, count: int) -> PlanResult:
    """A saved diagnosis on another chip."""
    return with_formulas(scaled.plan_diagnosis(Path(path), chips.find(chip), count))


def is_diagnosis(path: str) -> bool:
    """Whether a file is a saved diagnosis, not a model's config.json."""
    file = Path(path)
    if file.suffix != ".json" or not file.is_file():
        return False
    head = file.read_bytes()[:64]
    return re.match(rb'\s*\{\s*"schema"\s*:', head) is not None
