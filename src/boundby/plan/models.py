"""A transformer on paper: its sizes, from a Hugging Face config.json, a name or flags."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from boundby.model import Record
from boundby.model.errors import BoundbyError


class Latent(Record, frozen=True, kw_only=True):
    """Multi-head latent attention: low-rank queries and keys, a part of each head rotated."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


class ModelConfig(Record, frozen=True, kw_only=True):
    """Sizes of a decoder, or of an encoder or diffusion transformer with `causal` off.

    `window` tokens are seen by the `windowed` share of the layers. Layers from `dense_layers` on
    have experts, every `moe_every`-th of them; `shared_experts` see every token.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool = True
    tied: bool = False
    causal: bool = True
    experts: int = 0
    active_experts: int = 0
    moe_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    moe_every: int = 1
    window: int | None = None
    windowed: float = 0.0
    latent: Latent | None = None

    @property
    def moe_layers(self) -> int:
        return (self.layers - self.dense_layers) // self.moe_every if self.experts else 0

    @property
    def attention_params(self) -> int:
        """Weights of one layer's attention."""
        if self.latent is None:
            wide = 2 * self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim
            return self.hidden * wide
        it = self.latent
        head = it.nope_dim + it.rope_dim
        query = (
            it.q_rank * (self.hidden + self.heads * head)
            if it.q_rank
            else self.hidden * self.heads * head
        )
        key = self.hidden * (it.kv_rank + it.rope_dim)
        key += it.kv_rank * self.heads * (it.nope_dim + it.value_dim)
        return query + key + self.heads * it.value_dim * self.hidden

    @property
    def dense_ffn_params(self) -> int:
        return (3 if self.gated else 2) * self.hidden * self.ffn

    def expert_params(self, count: float) -> float:
        """Weights of so many experts of one layer."""
        return count * (3 if self.gated else 2) * self.hidden * self.moe_ffn

    def _ffn_params(self, experts: float) -> float:
        moe = self.expert_params(experts + self.shared_experts) + self.hidden * self.experts
        return self.moe_layers * moe + (self.layers - self.moe_layers) * self.dense_ffn_params

    @property
    def vocab_params(self) -> int:
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def params(self) -> float:
        """All matrix weights; norms and biases are left out (below 0.1%)."""
        return (
            self.layers * self.attention_params + self._ffn_params(self.experts) + self.vocab_params
        )

    @property
    def active_params(self) -> float:
        """Weights that multiply one token: active experts, and the output head once."""
        used = self.layers * self.attention_params + self._ffn_params(self.active_experts)
        return used + self.vocab * self.hidden

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of the cache that one token adds in one layer."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.kv_heads * self.head_dim

    def scored_keys(self, sequence: int) -> float:
        """Keys that a query sees, on the average over queries and layers."""

        def seen(window: int | None) -> float:
            if not self.causal:
                return float(sequence)
            if window is None or window >= sequence:
                return (sequence + 1) / 2
            return window - window * (window - 1) / (2 * sequence)

        return self.windowed * seen(self.window) + (1 - self.windowed) * seen(None)

    def train_flops_per_token(self, sequence: int) -> float:
        """6 per active weight and token, and attention's scored pairs (causal: the triangle)."""
        heads = self.heads * (
            self.head_dim
            if self.latent is None
            else (self.latent.nope_dim + self.latent.rope_dim + self.latent.value_dim) / 2
        )
        return 6 * self.active_params + 12 * self.layers * heads * self.scored_keys(sequence)


def _dense(name: str, sizes: tuple[int, ...], **more: Any) -> ModelConfig:
    layers, hidden, heads, kv_heads, head_dim, ffn, vocab = sizes
    return ModelConfig(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        vocab=vocab,
        **more,
    )


_DEEPSEEK_LATENT = Latent(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
# The models' published config.json files.
MODELS = {
    model.name: model
    for model in (
        _dense("gpt2", (12, 768, 12, 12, 64, 3072, 50257), gated=False, tied=True),
        _dense("gpt2-xl", (48, 1600, 25, 25, 64, 6400, 50257), gated=False, tied=True),
        _dense("gpt3-175b", (96, 12288, 96, 96, 128, 49152, 51200), gated=False, tied=True),
        _dense(
            "bert-large", (24, 1024, 16, 16, 64, 4096, 30522), gated=False, tied=True, causal=False
        ),
        _dense("llama-2-7b", (32, 4096, 32, 32, 128, 11008, 32000)),
        _dense("llama-2-13b", (40, 5120, 40, 40, 128, 13824, 32000)),
        _dense("llama-2-70b", (80, 8192, 64, 8, 128, 28672, 32000)),
        _dense("llama-3.1-8b", (32, 4096, 32, 8, 128, 14336, 128256)),
        _dense("llama-3.1-70b", (80, 8192, 64, 8, 128, 28672, 128256)),
        _dense("llama-3.1-405b", (126, 16384, 128, 8, 128, 53248, 128256)),
        _dense("qwen3-8b", (36, 4096, 32, 8, 128, 12288, 151936)),
        _dense(
            "gemma-3-12b",
            (48, 3840, 16, 8, 256, 15360, 262208),
            tied=True,
            window=1024,
            windowed=5 / 6,
        ),
        _dense(
            "mixtral-8x7b",
            (32, 4096, 32, 8, 128, 14336, 32000),
            experts=8,
            active_experts=2,
            moe_ffn=14336,
        ),
        _dense(
            "mixtral-8x22b",
            (56, 6144, 48, 8, 128, 16384, 32768),
            experts=8,
            active_experts=2,
            moe_ffn=16384,
        ),
        _dense(
            "llama-4-scout",
            (48, 5120, 40, 8, 128, 16384, 202048),
            experts=16,
            active_experts=1,
            moe_ffn=8192,
            shared_experts=1,
            window=8192,
            windowed=0.75,
        ),
        _dense(
            "llama-4-maverick",
            (48, 5120, 40, 8, 128, 16384, 202048),
            experts=128,
            active_experts=1,
            moe_ffn=8192,
            shared_experts=1,
            moe_every=2,
            window=8192,
            windowed=0.75,
        ),
        _dense(
            "qwen3-30b-a3b",
            (48, 2048, 32, 4, 128, 6144, 151936),
            experts=128,
            active_experts=8,
            moe_ffn=768,
        ),
        _dense(
            "qwen3-235b-a22b",
            (94, 4096, 64, 4, 128, 12288, 151936),
            experts=128,
            active_experts=8,
            moe_ffn=1536,
        ),
        _dense(
            "gpt-oss-120b",
            (36, 2880, 64, 8, 64, 2880, 201088),
            experts=128,
            active_experts=4,
            moe_ffn=2880,
            window=128,
            windowed=0.5,
        ),
        _dense(
            "deepseek-v3",
            (61, 7168, 128, 128, 128, 18432, 129280),
            experts=256,
            active_experts=8,
            moe_ffn=2048,
            shared_experts=1,
            dense_layers=3,
            latent=_DEEPSEEK_LATENT,
        ),
    )
}


def known(name: str) -> ModelConfig | None:
    """The model of the table with this name, whatever its capitals and hyphens."""
    squeezed = {re.sub(r"[^a-z0-9]", "", key): key for key in MODELS}
    wanted = re.sub(r"[^a-z0-9]", "", name.lower())
    return MODELS[squeezed[wanted]] if wanted in squeezed else None


def find(name: str) -> ModelConfig:
    """A model of the table, or a Hugging Face config.json."""
    path = Path(name)
    if name not in MODELS and (path.suffix == ".json" or path.is_dir()):
        return from_config(path / "config.json" if path.is_dir() else path)
    if found := known(name):
        return found
    raise BoundbyError(
        f"no model is called {name}: give a config.json, or one of {', '.join(MODELS)}"
    )


def from_config(path: Path) -> ModelConfig:
    """The sizes in a Hugging Face config.json; what an architecture does not say is the default."""
    try:
        raw = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BoundbyError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise BoundbyError(f"{path} is not JSON") from None
    if not isinstance(raw, dict):
        raise BoundbyError(f"{path} is not a model's config.json")
    return from_mapping(raw, name=str(raw.get("_name_or_path") or path.parent.name or path.stem))


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
_PLAIN_ACTIVATIONS = ("gelu", "gelu_new", "relu", "gelu_fast", "quick_gelu")
_NOT_CAUSAL = ("bert", "roberta", "vit", "clip", "dit", "siglip", "dinov2", "deberta")


def from_mapping(raw: dict[str, Any], name: str = "model") -> ModelConfig:
    """The same from the decoded file. Text models wrapped in a vision model keep theirs inside."""
    if "hidden_size" not in raw and isinstance(raw.get("text_config"), dict):
        raw = {**raw, **raw["text_config"]}

    def get(key: str) -> Any:
        return next((raw[one] for one in _KEYS[key] if raw.get(one) is not None), None)

    missing = [key for key in ("layers", "hidden", "heads") if not get(key)]
    if missing:
        words = " and ".join(_KEYS[key][0] for key in missing)
        raise BoundbyError(f"the config of {name} has no {words}")
    hidden, heads = int(get("hidden")), int(get("heads"))
    kind = str(raw.get("model_type", "")).lower()
    activation = str(raw.get("hidden_act") or raw.get("activation_function") or "silu")
    gated = activation not in _PLAIN_ACTIVATIONS or kind.startswith("gemma")
    experts = int(get("experts") or 0)
    ffn = int(get("ffn") or 4 * hidden)
    layer_types = raw.get("layer_types")
    windowed = 0.0
    if get("window") and raw.get("use_sliding_window", True):
        local = [one for one in layer_types or [] if "sliding" in str(one)]
        windowed = len(local) / len(layer_types) if layer_types else 1.0
    latent = None
    if raw.get("kv_lora_rank"):
        latent = Latent(
            q_rank=int(raw.get("q_lora_rank") or 0),
            kv_rank=int(raw["kv_lora_rank"]),
            nope_dim=int(raw["qk_nope_head_dim"]),
            rope_dim=int(raw["qk_rope_head_dim"]),
            value_dim=int(raw["v_head_dim"]),
        )
    return ModelConfig(
        name=name,
        layers=int(get("layers")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(get("kv_heads") or heads),
        head_dim=int(get("head_dim") or hidden // heads),
        ffn=ffn,
        vocab=int(get("vocab") or 0),
        gated=gated,
        tied=bool(raw.get("tie_word_embeddings", kind == "gpt2")),
        causal=not any(kind == one or kind.startswith(f"{one}_") for one in _NOT_CAUSAL),
        experts=experts,
        active_experts=int(get("active_experts") or 0),
        moe_ffn=int(get("moe_ffn") or ffn) if experts else 0,
        shared_experts=int(get("shared_experts") or 0),
        dense_layers=int(get("dense_layers") or 0),
        moe_every=int(get("moe_every") or 1),
        window=int(get("window")) if windowed else None,
        windowed=windowed,
        latent=latent,
    )
