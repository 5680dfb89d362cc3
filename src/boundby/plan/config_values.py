"""The sizes in a config.json, under any of their names."""

from __future__ import annotations

from typing import Any

from boundby.model.errors import BoundbyError

Raw = dict[str, Any]

KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "kv_n_heads"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "ffn": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "hidden_dim"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "active_experts": (
        *("num_experts_per_tok", "num_experts_per_token", "num_selected_experts"),
        *("moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
    ),
    "moe_ffn": ("moe_intermediate_size",),
    "shared_experts": (
        *("n_shared_experts", "num_shared_experts", "num_shared_expert"),
        "moe_num_shared_experts",
    ),
    "dense_layers": ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"),
    "moe_every": ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"),
    "window": ("sliding_window", "attention_chunk_size", "local_attention"),
    "positions": (
        *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "block_size"),
    ),
}

# Bits of a weight by the name of a method that states none; mxfp4 has an 8-bit scale for 32.
_METHOD_BITS = {"fp8": 8.0, "fbgemm_fp8": 8.0, "mxfp4": 4.25, "awq": 4.0, "gptq": 4.0}


class Sizes:
    """The numbers of a config."""

    def __init__(self, raw: Raw, name: str) -> None:
        self._raw, self._name = raw, name

    def number(self, key: str) -> int:
        """The size, 0 if it is not stated."""
        value = next((self._raw[one] for one in KEYS[key] if self._raw.get(one) is not None), 0)
        if isinstance(value, list) and value and len(set(map(str, value))) == 1:
            value = value[0]
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = -1
        if number < 0:
            raise BoundbyError(f"the config of {self._name} has no usable {KEYS[key][0]}")
        return number

    def stack(self) -> tuple[int, int, int]:
        """Layers, hidden size and heads, which every transformer has."""
        layers, heads = self.number("layers"), self.number("heads")
        hidden = self.number("hidden") or heads * self.number("head_dim")
        named = {"layers": layers, "hidden": hidden, "heads": heads}
        if missing := [KEYS[key][0] for key, value in named.items() if not value]:
            raise BoundbyError(
                f"the config of {self._name} has no {', '.join(missing)}: "
                "the config.json of a transformer would"
            )
        return layers, hidden, heads

    def head_dim(self, hidden: int, heads: int) -> int:
        """The width of a head, as stated or from the hidden size."""
        if stated := self.number("head_dim"):
            return stated
        if hidden % heads:
            raise BoundbyError(
                f"the config of {self._name} has {heads} heads, which do not divide its hidden "
                f"size of {hidden}: a head_dim would"
            )
        return hidden // heads


def kind_of(raw: Raw) -> str:
    """`model_type`, in lower case with underscores; without one, GPT-2 for sizes named as its."""
    stated = str(raw.get("model_type") or ("gpt2" if "n_embd" in raw else ""))
    return stated.lower().replace("-", "_")


def activation_of(raw: Raw) -> str:
    names = ("hidden_act", "hidden_activation", "activation_function", "activation")
    return str(next((raw[one] for one in names if raw.get(one)), "")).lower()


def text_part(raw: Raw) -> Raw:
    text = raw.get("text_config")
    return text if isinstance(text, dict) else {}


def _quantization(raw: Raw) -> Raw:
    stated = raw.get("quantization_config") or text_part(raw).get("quantization_config")
    return stated if isinstance(stated, dict) else {}


def quantized_bytes(raw: Raw) -> float | None:
    """Bytes of a quantized weight without its scales; None if the config states none."""
    stated = _quantization(raw)
    bits = _first_bits(stated)
    if bits is None:
        bits = _METHOD_BITS.get(str(stated.get("quant_method") or "").lower())
    return bits / 8 if bits else None


def stored_dtype(raw: Raw) -> str | None:
    """The type of quantized weights: fp8, int8 or int4; None if they are not quantized."""
    size = quantized_bytes(raw)
    if size is None or size > 1:
        return None
    if size < 1:
        return "int4"
    stated = str(_quantization(raw)).lower()
    return "fp8" if "fp8" in stated or "float" in stated else "int8"


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
