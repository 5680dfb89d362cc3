"""Rows of a table of published serving measurements, as services that `plan` can predict.

Columns as in inference_measured.csv: the model's sizes, chip, tp/ep/pp, dtypes, batch (a number,
or "max" for a saturated server), lengths, and a value in the unit of `metric`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from boundby.plan import assumptions, chips, models, serving
from boundby.plan.chips import Target
from boundby.plan.model_config import ModelConfig
from boundby.plan.row_values import Row, RowError, half, number, required
from boundby.plan.serving import Service

# The unit of each metric.
UNITS = {
    "decode_tokens_per_s": "tokens/s",
    "output_tokens_per_s": "tokens/s",
    "total_tokens_per_s": "tokens/s",
    "requests_per_s": "requests/s",
    "ttft_ms": "ms",
    "tpot_ms": "ms",
}
_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8",
    "int8": "int8",
    "nvfp4": "float4",
}
# A block of llama.cpp's q4_k_m or q4_0 and of mlc's q4f16, as the group that two 16-bit scales
# would give: 4.85 and 4.5 bits a weight.
_GROUPS = {"q4_k": 38, "q4_0": 64, "q4f16": 64}
# Beginnings of other names of weights in 8 bits.
_EIGHT_BITS = {"int8": "int8", "q8": "int8", "w8": "int8", "fp8": "fp8", "float8": "fp8"}
_HEAD_IN_INT8 = ("q4_k", "q4_0")  # 6.6 bits
_HEAD_AS_LAYERS = ("gpt-fast", "torchao", "mlc")


class ServingCase(NamedTuple):
    """One row as plan's own inputs; `saturated` servers run as many sequences as fit."""

    config: ModelConfig
    service: Service
    target: Target
    metric: str
    saturated: bool
    value: float


def model_of(row: Row) -> ModelConfig:
    """The model of this name, or one of the sizes stated: the feed-forward width follows from
    the number of parameters."""
    name = row.get("model", "")
    known = models.find_model(name)
    if known is not None:
        return known
    hidden, layers, heads = required(row, "hidden"), required(row, "layers"), required(row, "heads")
    params, active = number(row, "params_b"), number(row, "active_params_b")
    if params is None:
        raise RowError("no params_b")
    if active is not None and active < 0.98 * params:
        raise RowError(f"experts of {name} are not stated")
    bare = ModelConfig(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=round(number(row, "kv_heads") or heads),
        head_dim=round(number(row, "head_dim") or hidden // heads),
        ffn=0,
        vocab=required(row, "vocab"),
    )
    room = params * 1e9 - bare.vocab_params - layers * bare.attention_params
    if room <= 0:
        raise RowError("fewer parameters than its layers need")
    # Published widths are multiples of 128, and odd ones would be slow.
    width = max(1, round(room / layers / (3 * hidden) / assumptions.PADDED))
    return msgspec.structs.replace(bare, ffn=assumptions.PADDED * width)


def target_of(row: Row) -> Target:
    """The chip of a row; half of one if tensor parallelism counts its cores."""
    target = chips.find(row.get("chip", ""))
    if "two per chip" in (row.get("notes") or ""):
        return half(target)
    return target


def _weights(row: Row) -> dict[str, object]:
    """Dtype, group and head of the stored weights."""
    kind = row.get("weight_dtype", "").strip().lower()
    kind = next((name for start, name in _EIGHT_BITS.items() if kind.startswith(start)), kind)
    engine = (row.get("engine") or "").lower()
    if kind in ("", *_DTYPES) and kind != "nvfp4":
        stored = _DTYPES[kind or "bf16"]
        head = stored if stored == "int8" and engine.startswith(_HEAD_AS_LAYERS) else "bfloat16"
        return {"weights": stored, "head": head}
    if not re.search(r"4", kind):
        raise RowError(f"unknown weight_dtype {kind}")
    group = next((size for key, size in _GROUPS.items() if kind.startswith(key)), 0)
    stated = re.search(r"-g(\d+)", kind)
    group = group or (int(stated[1]) if stated else assumptions.INT4_GROUP)
    if kind == "nvfp4":
        group = assumptions.NVFP4_GROUP
    head = "int8" if kind.startswith(_HEAD_IN_INT8) else "bfloat16"
    if engine.startswith(_HEAD_AS_LAYERS):
        head = "int4"
    return {"weights": "int4", "group": group, "head": head}


def case_of(row: Row) -> ServingCase:
    """A row as a service; RowError if a size is missing."""
    metric = row.get("metric", "")
    if metric not in UNITS:
        raise RowError(f"unknown metric {metric or '(none)'}")
    value = number(row, "value")
    if value is None or value <= 0:
        raise RowError("no value")
    config, target = model_of(row), target_of(row)
    batch = row.get("batch", "").strip()
    if not batch:
        raise RowError("no batch")
    saturated = batch == "max"
    sequences = 1 if saturated else max(1, required(row, "batch"))
    tensor = max(1, round(number(row, "tp") or 1))
    pipeline = max(1, round(number(row, "pp") or 1))
    cache = _DTYPES.get(row.get("kv_dtype", ""), "bfloat16")
    engine = (row.get("engine") or "").lower()
    service = Service(
        batch=sequences,
        input_tokens=max(1, _length(row, "input_len", metric)),
        output_tokens=max(1, _length(row, "output_len", metric)),
        tensor=tensor,
        pipeline=pipeline,
        expert=max(1, round(number(row, "ep") or 1)),
        compute=_DTYPES.get(row.get("act_dtype", ""), "bfloat16"),
        cache_bytes=1.0 if cache in ("float8", "int8") else 2.0,
        host_ns=_host_ns(row, engine),
        stream_bytes_per_s=_of_engine(assumptions.ENGINE_STREAM_BYTES_PER_S, engine),
        **_weights(row),  # type: ignore[arg-type]
    )
    return ServingCase(config, service, target, metric, saturated, value)


def _of_engine(figures: dict[str, float], engine: str) -> float | None:
    return next((value for key, value in figures.items() if engine.startswith(key)), None)


def _host_ns(row: Row, engine: str) -> float:
    if engine.startswith("vllm") and "2023" in (row.get("notes") or ""):
        return assumptions.VLLM_2023_HOST_NS
    return 0.0


def _length(row: Row, name: str, metric: str) -> int:
    """Tokens; a first token needs no output length, and a decode rate no prompt."""
    stated = number(row, name)
    if stated is not None:
        return round(stated)
    if (name, metric) == ("output_len", "ttft_ms"):
        return 1
    if metric in ("decode_tokens_per_s", "tpot_ms"):
        return 1  # a short context: at batch 1 the weights are most of what is read
    raise RowError(f"no {name}")


def predicted(case: ServingCase) -> float:
    """The row's metric, in its unit."""
    config, service, target, metric = case.config, case.service, case.target, case.metric
    if metric == "ttft_ms":
        return serving.prefill_ns(config, service, target, service.batch) * 1e-6
    batch = service.batch
    if case.saturated:
        fitting = serving.largest_batch(config, service, target)
        if fitting < 1:
            raise RowError(f"{config.name} does not fit")
        batch = min(fitting, assumptions.LARGEST_BATCH)
    step = serving.decode(config, service, target, batch)
    if metric == "tpot_ms":
        return step.ns * 1e-6
    if metric == "decode_tokens_per_s":
        return batch / (step.ns * 1e-9)
    if case.saturated:
        output = serving.throughput(config, service, target, batch)
    else:
        first = serving.prefill_ns(config, service, target, batch)
        output = batch * service.output_tokens / ((first + service.output_tokens * step.ns) * 1e-9)
    if metric == "requests_per_s":
        return output / service.output_tokens
    if metric == "total_tokens_per_s":
        return output * (1 + service.input_tokens / service.output_tokens)
    return output
