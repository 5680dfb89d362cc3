"""A model's sizes from a Hugging Face config.json: its kind, and the reader of that kind.

To add a kind: a file like `config_text.py` with a function from the decoded config to a
`ModelConfig`, and its line in `from_mapping`.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from boundby.model.errors import BoundbyError
from boundby.plan.config_checked import CHECKED
from boundby.plan.config_image import (
    diffusion_transformer,
    is_diffusion,
    is_vision,
    vision_encoder,
)
from boundby.plan.config_refused import refuse
from boundby.plan.config_text import language_model
from boundby.plan.config_values import Raw, kind_of, stored_dtype, text_part
from boundby.plan.model_config import ModelConfig

# What a config states and a plan leaves out.
_LEFT_OUT = {
    "index_topk": "attention to selected keys is planned as attention to all",
    "num_nextn_predict_layers": "its layers that predict further tokens are left out",
}


def from_config(path: Path) -> ModelConfig:
    """The sizes in a config.json."""
    return from_mapping(*read_config(path))


def read_config(path: Path) -> tuple[Raw, str]:
    """A config.json decoded, and the name of its model."""
    try:
        raw = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BoundbyError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise BoundbyError(f"{path} is not JSON") from None
    if not isinstance(raw, dict):
        raise BoundbyError(f"{path} is not a model's config.json")
    return raw, str(
        raw.get("_name_or_path") or (path.parent.name if path.stem == "config" else path.stem)
    )


def from_mapping(raw: Raw, name: str = "model") -> ModelConfig:
    """The same from the decoded file. For a model of text and images, the text model is planned."""
    refuse(raw, name)
    if is_diffusion(raw):
        return diffusion_transformer(raw, name)
    if isinstance(raw.get("text_config"), dict):
        text = raw["text_config"]
        refuse(text, name)
        shared = {key: raw[key] for key in ("tie_word_embeddings",) if key in raw}
        whole = {"model_type": raw.get("model_type"), **shared, **text}
        return _noted(language_model(whole, name), raw, "its text model alone is planned")
    found = vision_encoder(raw, name) if is_vision(raw) else language_model(raw, name)
    return _noted(found, raw)


def _noted(config: ModelConfig, raw: Raw, *notes: str) -> ModelConfig:
    """The model, with a warning if its kind is not one that was compared with real models."""
    stated = {**raw, **text_part(raw)}
    notes = (*notes, *(note for key, note in _LEFT_OUT.items() if stated.get(key)))
    if (kind := kind_of(raw)) not in CHECKED:
        stack = "a decoder" if config.causal else "an encoder"
        notes = (
            *notes,
            f"model_type {kind or '(none)'} was not compared with a real model: it is read as "
            f"{stack} of {config.layers} layers, so compare its number of parameters",
        )
    return msgspec.structs.replace(config, notes=notes, stored=stored_dtype(raw))
