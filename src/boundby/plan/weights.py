"""The weights that one pass of a model reads, from its config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boundby.model import DTYPE_BYTES
from boundby.model.weights import ModelWeights
from boundby.plan.config_json import from_mapping, read_config
from boundby.plan.config_values import Raw

# Bits of a weight by the name of a method that states none; mxfp4 has an 8-bit scale for 32.
_METHOD_BITS = {"fp8": 8.0, "fbgemm_fp8": 8.0, "mxfp4": 4.25, "awq": 4.0, "gptq": 4.0}


def model_weights(path: Path) -> ModelWeights:
    """The weights of the model in a config.json. The input embedding is looked up, not read."""
    raw, name = read_config(path)
    config = from_mapping(raw, name)
    head = float(config.vocab * config.hidden)
    experts = config.moe_layers * config.expert_params(config.experts)
    return ModelWeights(
        name=name,
        layers=config.layers,
        hidden=config.hidden,
        layers_params=config.params - config.vocab_params - experts,
        head_params=head,
        expert_params=experts,
        experts=config.experts if experts else 0,
        active_experts=config.active_experts,
        layer_bytes=_quantized_bytes(raw),
        dtype_bytes=_dtype_bytes(raw),
    )


def _text_part(raw: Raw) -> Raw:
    text = raw.get("text_config")
    return text if isinstance(text, dict) else {}


def _quantized_bytes(raw: Raw) -> float | None:
    """Bytes of a quantized weight without its scales; None if the config states none."""
    stated = raw.get("quantization_config") or _text_part(raw).get("quantization_config")
    if not isinstance(stated, dict):
        return None
    bits = _first_bits(stated)
    if bits is None:
        bits = _METHOD_BITS.get(str(stated.get("quant_method") or "").lower())
    return bits / 8 if bits else None


def _first_bits(stated: dict[str, Any]) -> float | None:
    """The bits under any of the names that libraries use."""
    for key, bits in (("load_in_4bit", 4.0), ("load_in_8bit", 8.0)):
        if stated.get(key) is True:
            return bits
    named = [stated.get("bits"), stated.get("w_bit")]
    groups = stated.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        named.append(weights.get("num_bits") if isinstance(weights, dict) else None)
    return next((float(one) for one in named if isinstance(one, int) and one > 0), None)


def _dtype_bytes(raw: Raw) -> float:
    """Bytes of a weight that is not quantized; two, if the config does not say."""
    parts = (raw, _text_part(raw))
    stated = next(
        (one[key] for one in parts for key in ("dtype", "torch_dtype") if one.get(key)), None
    )
    return float(DTYPE_BYTES.get(str(stated).removeprefix("torch."), 2))
