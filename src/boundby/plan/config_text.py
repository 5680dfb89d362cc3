"""Language models: decoders and encoders, with experts, windows and latent attention."""

from __future__ import annotations

import math

from boundby.model.errors import BoundbyError
from boundby.plan.config_values import KEYS, Raw, Sizes, activation_of, kind_of
from boundby.plan.model_config import Latent, ModelConfig

# Defaults of a kind for what a config does not state. No gate without an activation:
_PLAIN = ("gpt", "openai", "mpt", "bloom", "opt", "falcon", "phi", "starcoder", "esm")
_GATED = ("gemma", "vaultgemma", "modernbert", "chatglm", "glm", "bitnet", "gte", "grok")
# Encoders, whose tokens see all others; and decoders with such a name.
_ENCODERS = (
    *("bert", "electra", "mpnet", "esm", "ernie", "nomic", "splinter", "tapas", "dpr", "bros"),
    *("nystromformer", "mra", "roformer", "layoutlm", "data2vec_text", "gte", "jina_embeddings"),
)
_DECODERS = ("ernie4", "modernbert_decoder", "bert_generation")
# The output head is the embedding.
_TIED = (
    *("gpt2", "gpt_neo", "gpt_bigcode", "bloom", "opt", "mpt", "starcoder2", "gemma"),
    *("cohere", "granite", "smollm", "xglm", "minicpm"),
)
_UNTIED = ("gpt_neox",)
# A learned vector for each position.
_LEARNED_POSITIONS = (
    *("gpt2", "openai_gpt", "gpt_bigcode", "gpt_neo", "opt", "biogpt", "clip_text_model"),
    *("bert", "roberta", "xlm_roberta", "camembert", "distilbert", "electra", "megatron_bert"),
)
# Sizes that published configs omit, with the defaults of Transformers' classes.
_DEFAULTS: dict[str, Raw] = {
    "llama": {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "intermediate_size": 11008, "vocab_size": 32000,
    },
    "mistral": {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "intermediate_size": 14336, "vocab_size": 32000, "num_key_value_heads": 8,
    },
    "gemma3_text": {
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "vocab_size": 262208, "sliding_window_pattern": 6,
    },
}  # fmt: skip


def language_model(raw: Raw, name: str) -> ModelConfig:
    """The sizes of a decoder or encoder of text."""
    kind = kind_of(raw)
    raw = {**_DEFAULTS.get(kind, {}), **_flat(raw)}
    sizes = Sizes(raw, name)
    layers, hidden, heads = sizes.stack()
    experts = sizes.number("experts")
    ffn = sizes.number("ffn") or _derived_ffn(raw, hidden)
    if kind == "qwen":  # states the widths of the gate and of the other half together
        ffn //= 2
    active = sizes.number("active_experts")
    if experts and not active:
        raise BoundbyError(
            f"the config of {name} has {experts} experts, but not how many of them a token meets: "
            f"{KEYS['active_experts'][0]} would"
        )
    moe_ffn = sizes.number("moe_ffn") or ffn
    shared = sizes.number("shared_experts")
    if wide := raw.get("shared_expert_intermediate_size"):
        shared = max(1, round(int(wide) / moe_ffn))
    if dense := raw.get("intermediate_size_mlp"):  # Llama 4: dense layers are wider
        ffn, shared = int(dense), 1
    latent = _latent(raw, name)
    windowed = _windowed(raw, kind) if sizes.number("window") else 0.0
    causal, positions = _is_causal(raw, kind), sizes.number("positions")
    return ModelConfig(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(raw, sizes, kind) or heads,
        head_dim=sizes.head_dim(hidden, heads) if latent is None else latent.nope_dim,
        ffn=ffn,
        vocab=sizes.number("vocab"),
        gated=_is_gated(raw, kind),
        tied=bool(raw.get("tie_word_embeddings", _is_tied(kind))),
        causal=causal,
        head=_has_head(raw, kind, causal=causal),
        table_params=positions * hidden if kind in _LEARNED_POSITIONS else 0,
        experts=experts,
        active_experts=active if experts else 0,
        moe_ffn=moe_ffn if experts else 0,
        shared_experts=shared if experts else 0,
        dense_layers=_dense_layers(raw, sizes),
        moe_every=max(1, sizes.number("moe_every")),
        window=sizes.number("window") if windowed else None,
        windowed=windowed,
        latent=latent,
        positions=positions or None,
    )


def _derived_ffn(raw: Raw, hidden: int) -> int:
    """The width that follows from the hidden size; Llama's params.json rounds two thirds of it."""
    if multiple := int(raw.get("multiple_of") or 0):
        width = int(8 * hidden / 3) * float(raw.get("ffn_dim_multiplier") or 1)
        return multiple * math.ceil(int(width) / multiple)
    return round(float(raw.get("expansion_ratio") or 4) * hidden)


def _flat(raw: Raw) -> Raw:
    """DBRX and MPT keep sizes of attention and feed-forward layers in nested parts."""
    attention, ffn = raw.get("attn_config"), raw.get("ffn_config")
    inner = {**(attention if isinstance(attention, dict) else {})}
    inner |= ffn if isinstance(ffn, dict) else {}
    return {**inner, **raw}


def _kv_heads(raw: Raw, sizes: Sizes, kind: str) -> int:
    """Heads of keys and values: one for multi-query models unless they state groups."""
    if raw.get("multi_query_attention"):
        return int(raw.get("multi_query_group_num") or 1)
    if raw.get("multi_query") and not raw.get("new_decoder_architecture"):
        return 1
    if kind.startswith("falcon") and not raw.get("new_decoder_architecture"):
        return 0
    return sizes.number("kv_heads")


def _dense_layers(raw: Raw, sizes: Sizes) -> int:
    """Layers without experts in a model that has them."""
    if isinstance(kinds := raw.get("mlp_layer_types"), list):
        return sum(one == "dense" for one in kinds)
    return sizes.number("dense_layers") + len(raw.get("mlp_only_layers") or ())


def _is_encoder(kind: str) -> bool:
    return any(one in kind for one in _ENCODERS) and not kind.startswith(_DECODERS)


def _is_causal(raw: Raw, kind: str) -> bool:
    """Whether attention is causal, by the model's architecture or type; towers of images and sound
    have no vocabulary."""
    made_for = " ".join(str(one) for one in raw.get("architectures") or ())
    if "CausalLM" in made_for or "MaskedLM" in made_for:
        return "CausalLM" in made_for
    return any(raw.get(one) for one in KEYS["vocab"]) and not _is_encoder(kind)


def _has_head(raw: Raw, kind: str, *, causal: bool) -> bool:
    """Whether it predicts words: encoders that are made for vectors or classes do not."""
    made_for = " ".join(str(one) for one in raw.get("architectures") or ())
    if kind.startswith("clip_text"):
        return False
    return causal or not made_for or any(one in made_for for one in ("LM", "PreTraining"))


def _is_tied(kind: str) -> bool:
    if kind.startswith(_UNTIED):
        return False
    return kind.startswith(_TIED) or _is_encoder(kind)


def _is_gated(raw: Raw, kind: str) -> bool:
    activation = activation_of(raw)
    if kind.startswith(_GATED) or "glu" in activation or activation.startswith("gated"):
        return True
    if not activation:
        return not kind.startswith(_PLAIN) and not _is_encoder(kind)
    return activation in ("silu", "swish")


def _windowed(raw: Raw, kind: str) -> float:
    """Share of the layers whose attention has a window."""
    if not raw.get("use_sliding_window", True):
        return 0.0
    layer_types = raw.get("layer_types")
    if isinstance(layer_types, list) and layer_types:
        near = ("sliding", "chunked")
        return sum(str(one).startswith(near) for one in layer_types) / len(layer_types)
    names = ("sliding_window_pattern", "global_attn_every_n_layers", "no_rope_layer_interval")
    pattern = next((raw[one] for one in names if isinstance(raw.get(one), int)), 0)
    if raw.get("attention_chunk_size"):  # Llama 4: every fourth layer sees all
        pattern = pattern or 4
    if pattern:
        return 1 - 1 / pattern
    return 0.5 if kind.startswith("gemma2") else 1.0


def _latent(raw: Raw, name: str) -> Latent | None:
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
