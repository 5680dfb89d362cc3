"""A table of known transformers, and finding a model by name or file."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from boundby.model.errors import BoundbyError
from boundby.plan.config_json import from_config
from boundby.plan.model_config import Latent, ModelConfig


def _dense(
    name: str, sizes: tuple[int, ...], *, learned: int | None = None, **more: Any
) -> ModelConfig:
    """A model of these sizes, with so many learned positions."""
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
        positions=learned,
        table_params=(learned or 0) * hidden,
        **more,
    )


_PLAIN: dict[str, Any] = {"gated": False, "tied": True}
_BERT: dict[str, Any] = {**_PLAIN, "causal": False, "learned": 512}
_GEMMA_3: dict[str, Any] = {"tied": True, "windowed": 5 / 6}
_GPT_OSS: dict[str, Any] = {
    "active_experts": 4, "moe_ffn": 2880, "window": 128, "windowed": 0.5, "stored": "int4",
}  # fmt: skip
_DEEPSEEK_LATENT = Latent(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
# The models' published config.json files.
MODELS = {
    model.name: model
    for model in (
        _dense("gpt2", (12, 768, 12, 12, 64, 3072, 50257), **_PLAIN, learned=1024),
        _dense("gpt2-xl", (48, 1600, 25, 25, 64, 6400, 50257), **_PLAIN, learned=1024),
        _dense("gpt3-175b", (96, 12288, 96, 96, 128, 49152, 51200), **_PLAIN, learned=2048),
        _dense("bert-base", (12, 768, 12, 12, 64, 3072, 30522), **_BERT),
        _dense("bert-large", (24, 1024, 16, 16, 64, 4096, 30522), **_BERT),
        _dense("llama-2-7b", (32, 4096, 32, 32, 128, 11008, 32000)),
        _dense("llama-2-13b", (40, 5120, 40, 40, 128, 13824, 32000)),
        _dense("llama-2-70b", (80, 8192, 64, 8, 128, 28672, 32000)),
        _dense("llama-3.2-1b", (16, 2048, 32, 8, 64, 8192, 128256), tied=True),
        _dense("llama-3.2-3b", (28, 3072, 24, 8, 128, 8192, 128256), tied=True),
        _dense("llama-3.1-8b", (32, 4096, 32, 8, 128, 14336, 128256)),
        _dense("llama-3.1-70b", (80, 8192, 64, 8, 128, 28672, 128256)),
        _dense("llama-3.1-405b", (126, 16384, 128, 8, 128, 53248, 128256)),
        _dense("mistral-7b", (32, 4096, 32, 8, 128, 14336, 32768)),
        _dense("phi-4", (40, 5120, 40, 10, 128, 17920, 100352)),
        _dense("qwen2.5-7b", (28, 3584, 28, 4, 128, 18944, 152064)),
        _dense("qwen2.5-72b", (80, 8192, 64, 8, 128, 29568, 152064)),
        _dense("qwen3-0.6b", (28, 1024, 16, 8, 128, 3072, 151936), tied=True),
        _dense("qwen3-1.7b", (28, 2048, 16, 8, 128, 6144, 151936), tied=True),
        _dense("qwen3-4b", (36, 2560, 32, 8, 128, 9728, 151936), tied=True),
        _dense("qwen3-8b", (36, 4096, 32, 8, 128, 12288, 151936)),
        _dense("qwen3-14b", (40, 5120, 40, 8, 128, 17408, 151936)),
        _dense("qwen3-32b", (64, 5120, 64, 8, 128, 25600, 151936)),
        _dense("gemma-3-1b", (26, 1152, 4, 1, 256, 6912, 262144), **_GEMMA_3, window=512),
        _dense("gemma-3-4b", (34, 2560, 8, 4, 256, 10240, 262208), **_GEMMA_3, window=1024),
        _dense("gemma-3-12b", (48, 3840, 16, 8, 256, 15360, 262208), **_GEMMA_3, window=1024),
        _dense("gemma-3-27b", (62, 5376, 32, 16, 128, 21504, 262208), **_GEMMA_3, window=1024),
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
        _dense("gpt-oss-20b", (24, 2880, 64, 8, 64, 2880, 201088), experts=32, **_GPT_OSS),
        _dense("gpt-oss-120b", (36, 2880, 64, 8, 64, 2880, 201088), experts=128, **_GPT_OSS),
        _dense(
            "deepseek-v3",
            (61, 7168, 128, 128, 128, 18432, 129280),
            experts=256,
            active_experts=8,
            moe_ffn=2048,
            shared_experts=1,
            dense_layers=3,
            latent=_DEEPSEEK_LATENT,
            stored="fp8",
        ),
    )
}


# Other models of the same sizes.
_SAME = {
    "llama-3-8b": "llama-3.1-8b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3.3-70b": "llama-3.1-70b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
}


def find_model(name: str) -> ModelConfig | None:
    """The model of the table with this name, regardless of capitals and hyphens."""
    names = {**{key: key for key in MODELS}, **_SAME}
    squeezed = {_squeezed(key): found for key, found in names.items()}
    found = squeezed.get(_squeezed(name).removeprefix("meta"))
    return MODELS[found] if found else None


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# Parts of names besides the model: how it was tuned or stored.
_SUFFIX = re.compile(r"-(instruct|chat|base|hf|it|pt|v0\.\d|\d{4})$", re.IGNORECASE)


def _bare(name: str) -> str:
    """The name without its owner on Hugging Face and the words at its end."""
    bare = name.rsplit("/", 1)[-1]
    while _SUFFIX.search(bare):
        bare = _SUFFIX.sub("", bare)
    return bare


def find(name: str) -> ModelConfig:
    """A model of the table, or a Hugging Face config.json."""
    path = Path(name)
    if name not in MODELS and (path.suffix == ".json" or path.is_dir()):
        return from_config(path / "config.json" if path.is_dir() else path)
    if found := find_model(name) or find_model(_bare(name)):
        return found
    near = difflib.get_close_matches(_bare(name).lower(), MODELS, n=3, cutoff=0.7)
    if near:
        meant = f"did you mean {' or '.join(near)}? Otherwise its config.json would do"
    else:
        meant = f"give its config.json, or one of {', '.join(MODELS)}"
    raise BoundbyError(f"no model is called {name}: {meant}")
