"""Kinds of models that a plan cannot cost, by their config.json, and the reason."""

from __future__ import annotations

from boundby.model.errors import BoundbyError
from boundby.plan.config_checked import UNREAD
from boundby.plan.config_values import Raw, kind_of

# Keys of layers of this kind only.
_LAYERS = {
    "state-space layers": ("state_size", "ssm_cfg", "mamba_d_state", "ssm_state_size", "d_state"),
    "recurrent layers": ("attention_hidden_size", "lru_width", "rescale_every"),
    "linear attention": ("linear_num_value_heads", "linear_attn_config", "full_attn_alpha_factor"),
    "convolutions or stages of different widths": (
        *("block_out_channels", "depths", "hidden_sizes", "block_types", "conv_dim"),
    ),
    "layers of different widths": ("block_configs",),
    "layers that share their weights": ("num_hidden_groups",),
}
_KINDS = {
    "state-space layers": ("mamba", "zamba", "bamba", "jamba", "nemotron_h", "granitemoehybrid"),
    "recurrent layers": ("rwkv", "recurrent_gemma", "xlstm", "retnet"),
}
_ENCODER_DECODERS = (
    "t5",
    "mt5",
    "umt5",
    "bart",
    "mbart",
    "marian",
    "pegasus",
    "whisper",
    "m2m_100",
)
# Two encoders of equal rank, in text_config and vision_config.
_PAIRS = ("clip", "siglip", "chinese_clip", "altclip", "align", "blip")
_WHAT_WOULD = (
    "decoders, encoders, vision encoders and diffusion transformers of equal attention layers would"
)


def refuse(raw: Raw, name: str) -> None:
    """Raise for a model that is not a stack of attention layers."""
    kind = kind_of(raw)
    for what, keys in _LAYERS.items():
        if any(raw.get(key) is not None for key in keys) or kind.startswith(_KINDS.get(what, ())):
            raise BoundbyError(f"{name} has {what}, which plan has no costs for: {_WHAT_WOULD}")
    if len(set(raw.get("attn_type_list") or ())) > 1:
        raise BoundbyError(
            f"{name} has linear attention, which plan has no costs for: {_WHAT_WOULD}"
        )
    mixed = {str(one) for one in raw.get("layer_types") or ()}
    if other := [one for one in sorted(mixed) if "attention" not in one or "linear" in one]:
        raise BoundbyError(
            f"{name} has {other[0]} layers, which plan has no costs for: {_WHAT_WOULD}"
        )
    if raw.get("is_encoder_decoder") or kind in _ENCODER_DECODERS:
        raise BoundbyError(
            f"{name} has an encoder and a decoder, plan costs one stack of layers: {_WHAT_WOULD}"
        )
    if kind in UNREAD:
        raise BoundbyError(
            f"{name} is a {kind}, whose layers the sizes of its config do not describe: "
            f"{_WHAT_WOULD}"
        )
    if kind.startswith(_PAIRS) and "text_config" in raw:
        raise BoundbyError(
            f"{name} has a text and a vision encoder, plan costs one stack of layers: "
            "its text_config or its vision_config, saved as a config.json, would"
        )
