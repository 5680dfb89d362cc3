"""A model's sizes from a Hugging Face config.json, also of diffusers and of wrapped text models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from boundby.model.errors import BoundbyError
from boundby.plan.model_config import Latent, ModelConfig

_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "attention_head_dim"),
    "ffn": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "vocab": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "active_experts": ("num_experts_per_tok", "moe_topk", "num_experts_per_token"),
    "moe_ffn": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
    "moe_every": ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"),
    "window": ("sliding_window",),
}
# What a config does not say is the architecture's default: these have no gate.
_PLAIN = ("gpt", "mpt", "bloom", "opt", "falcon", "vit", "dit", "phi", "bert", "starcoder")
_NOT_CAUSAL = (
    *("bert", "roberta", "deberta", "vit", "clip", "siglip", "dinov2", "beit", "deit", "dit"),
)


def from_config(path: Path) -> ModelConfig:
    """The sizes in a config.json."""
    try:
        raw = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BoundbyError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise BoundbyError(f"{path} is not JSON") from None
    if not isinstance(raw, dict):
        raise BoundbyError(f"{path} is not a model's config.json")
    return from_mapping(raw, name=str(raw.get("_name_or_path") or path.parent.name or path.stem))


class _Sizes:
    """The values of a config under any of the names they are known by."""

    def __init__(self, raw: dict[str, Any], name: str) -> None:
        self._raw, self._name = raw, name

    def number(self, key: str) -> int:
        """The size, 0 where it is not stated."""
        value = next((self._raw[one] for one in _KEYS[key] if self._raw.get(one) is not None), 0)
        if isinstance(value, list) and value and len(set(map(str, value))) == 1:
            value = value[0]
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = -1
        if number < 0:
            raise BoundbyError(f"the config of {self._name} has no usable {_KEYS[key][0]}")
        return number


def from_mapping(raw: dict[str, Any], name: str = "model") -> ModelConfig:
    """The same from the decoded file. Text models wrapped in a vision model keep theirs inside."""
    for inner in ("text_config", "vision_config"):
        if "hidden_size" not in raw and isinstance(raw.get(inner), dict):
            raw = {**raw, **raw[inner]}
    sizes = _Sizes(raw, name)
    kind = str(raw.get("model_type") or "").lower()
    is_diffusion = "Transformer2D" in str(raw.get("_class_name", "")) or kind == "dit"
    layers, heads = sizes.number("layers"), sizes.number("heads")
    hidden = sizes.number("hidden") or heads * sizes.number("head_dim")
    missing = [
        _KEYS[key][0]
        for key, value in (("layers", layers), ("hidden", hidden), ("heads", heads))
        if not value
    ]
    if missing:
        raise BoundbyError(f"the config of {name} has no {' and '.join(missing)}")
    experts = sizes.number("experts")
    ffn = sizes.number("ffn") or 4 * hidden
    moe_ffn = sizes.number("moe_ffn") or ffn
    shared = sizes.number("shared_experts")
    if wide := raw.get("shared_expert_intermediate_size"):
        shared = max(1, round(int(wide) / moe_ffn))
    if dense := raw.get("intermediate_size_mlp"):  # Llama 4: dense layers are wider
        ffn, shared = int(dense), 1
    windowed = _windowed(raw, kind) if sizes.number("window") else 0.0
    return ModelConfig(
        name=name,
        layers=layers + int(raw.get("num_single_layers") or 0),
        hidden=hidden,
        heads=heads,
        kv_heads=sizes.number("kv_heads") or heads,
        head_dim=sizes.number("head_dim") or hidden // heads,
        ffn=ffn,
        vocab=0 if is_diffusion else sizes.number("vocab"),
        gated=not is_diffusion and _is_gated(raw, kind),
        tied=bool(raw.get("tie_word_embeddings", kind == "gpt2")),
        causal=not is_diffusion
        and not any(kind == one or kind.startswith(f"{one}_") for one in _NOT_CAUSAL),
        experts=experts,
        active_experts=max(1, sizes.number("active_experts")) if experts else 0,
        moe_ffn=moe_ffn if experts else 0,
        shared_experts=shared if experts else 0,
        dense_layers=sizes.number("dense_layers"),
        moe_every=max(1, sizes.number("moe_every")),
        window=sizes.number("window") if windowed else None,
        windowed=windowed,
        latent=_latent(raw, name),
        tokens=_image_tokens(raw, is_diffusion=is_diffusion),
        modulated=is_diffusion,
    )


def _is_gated(raw: dict[str, Any], kind: str) -> bool:
    names = ("hidden_act", "hidden_activation", "activation_function", "activation")
    activation = str(next((raw[one] for one in names if raw.get(one)), "")).lower()
    if kind.startswith("gemma") or "glu" in activation or activation.startswith("gated"):
        return True
    if not activation:
        return not kind.startswith(_PLAIN)
    return activation in ("silu", "swish")


def _windowed(raw: dict[str, Any], kind: str) -> float:
    """Share of the layers whose attention has a window."""
    if not raw.get("use_sliding_window", True):
        return 0.0
    layer_types = raw.get("layer_types")
    if isinstance(layer_types, list) and layer_types:
        return sum("sliding" in str(one) for one in layer_types) / len(layer_types)
    if pattern := raw.get("sliding_window_pattern"):
        return 1 - 1 / int(pattern)
    return 0.5 if kind.startswith("gemma2") else 1.0


def _latent(raw: dict[str, Any], name: str) -> Latent | None:
    if not raw.get("kv_lora_rank"):
        return None
    try:
        return Latent(
            q_rank=int(raw.get("q_lora_rank") or 0),
            kv_rank=int(raw["kv_lora_rank"]),
            nope_dim=int(raw["qk_nope_head_dim"]),
            rope_dim=int(raw["qk_rope_head_dim"]),
            value_dim=int(raw["v_head_dim"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BoundbyError(f"the config of {name} has latent attention without {error}") from None


def _image_tokens(raw: dict[str, Any], *, is_diffusion: bool) -> int | None:
    """Patches of one image, and one more for its class."""
    image = raw.get("sample_size" if is_diffusion else "image_size")
    patch = raw.get("patch_size")
    if isinstance(image, list):
        image = image[0]
    if not isinstance(image, int) or not isinstance(patch, int) or patch < 1:
        return None
    return (image // patch) ** 2 + (0 if is_diffusion else 1)
