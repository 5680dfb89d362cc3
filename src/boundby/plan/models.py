"""A table of known transformers, and finding a model by name or file."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from boundby.model.errors import BoundbyError
from boundby.plan.config_json import from_config
from boundby.plan.model_config import Latent, ModelConfig


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
    """The model of the table with this name, regardless of capitals and hyphens."""
    squeezed = {re.sub(r"[^a-z0-9]", "", key): key for key in MODELS}
    wanted = re.sub(r"[^a-z0-9]", "", name.lower())
    return MODELS[squeezed[wanted]] if wanted in squeezed else None


# Parts of names besides the model: how it was tuned or stored.
_SUFFIX = re.compile(r"-(instruct|chat|base|hf|it|pt|v0\.\d|\d{4})$", re.IGNORECASE)


def _bare(name: str) -> str:
    """Without the owner of a Hugging Face name and the words at its end."""
    bare = name.rsplit("/", 1)[-1]
    while _SUFFIX.search(bare):
        bare = _SUFFIX.sub("", bare)
    return bare


def find(name: str) -> ModelConfig:
    """A model of the table, or a Hugging Face config.json."""
    path = Path(name)
    if name not in MODELS and (path.suffix == ".json" or path.is_dir()):
        return from_config(path / "config.json" if path.is_dir() else path)
    if found := known(name) or known(_bare(name)):
        return found
    near = difflib.get_close_matches(_bare(name).lower(), MODELS, n=3, cutoff=0.7)
    meant = f"did you mean {' or '.join(near)}? Otherwise " if near else ""
    raise BoundbyError(
        f"no model is called {name}: {meant}give its config.json, or one of {', '.join(MODELS)}"
    )
