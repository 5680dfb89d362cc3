"""The weights that one pass of a model reads, from its config.json."""

from __future__ import annotations

from pathlib import Path

from boundby.model import DTYPE_BYTES
from boundby.model.weights import ModelWeights
from boundby.plan.config_json import from_mapping, read_config
from boundby.plan.config_values import Raw, quantized_bytes, text_part


def model_weights(path: Path) -> ModelWeights:
    """The weights of the model in a config.json. The input embedding is looked up, not read."""
    raw, name = read_config(path)
    config = from_mapping(raw, name)
    head = float(config.vocab * config.hidden) if config.head else 0.0
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
        layer_bytes=quantized_bytes(raw),
        dtype_bytes=_dtype_bytes(raw),
    )


def _dtype_bytes(raw: Raw) -> float:
    """Bytes of a weight that is not quantized; two, if the config does not say."""
    parts = (raw, text_part(raw))
    stated = next(
        (one[key] for one in parts for key in ("dtype", "torch_dtype") if one.get(key)), None
    )
    return float(DTYPE_BYTES.get(str(stated).removeprefix("torch."), 2))
