"""Models of images: vision encoders and diffusion transformers."""

from __future__ import annotations

import math

from boundby.model.errors import BoundbyError
from boundby.plan.config_values import Raw, Sizes, activation_of, kind_of
from boundby.plan.model_config import ModelConfig

_VISION = ("vit", "siglip", "dinov2", "beit", "deit", "clip_vision", "ijepa")
# hidden x hidden weights that scale and shift: a layer of one stream or of two, and one that has
# attention and feed-forward in parallel (the models' published code).
_MODULATION, _PARALLEL_MODULATION = 6.0, 3.0
_ONE_STREAM = ("DiTTransformer2DModel",)
_TWO_STREAMS = ("SD3Transformer2DModel", "FluxTransformer2DModel")


def is_diffusion(raw: Raw) -> bool:
    """Whether it is a transformer of the diffusers library."""
    return "_class_name" in raw or kind_of(raw) == "dit"


def is_vision(raw: Raw) -> bool:
    return kind_of(raw).startswith(_VISION) or "vision_model" in kind_of(raw)


def diffusion_transformer(raw: Raw, name: str) -> ModelConfig:
    """Layers that a condition scales and shifts; of two streams, each token passes one."""
    kind = str(raw.get("_class_name", _ONE_STREAM[0]))
    if kind not in (*_ONE_STREAM, *_TWO_STREAMS) or raw.get("dual_attention_layers"):
        raise BoundbyError(
            f"{name} is a {kind}, whose layers plan has no costs for: "
            f"{', '.join((*_ONE_STREAM, *_TWO_STREAMS))} would"
        )
    sizes = Sizes(raw, name)
    layers, hidden, heads = sizes.stack()
    twins = layers if kind in _TWO_STREAMS else 0
    parallel = int(raw.get("num_single_layers") or 0)
    scales = (layers + twins) * _MODULATION + parallel * _PARALLEL_MODULATION
    return _encoder(
        name,
        sizes,
        layers=layers + parallel,
        hidden=hidden,
        heads=heads,
        ffn=sizes.number("ffn") or 4 * hidden,
        tokens=_patches(raw, "sample_size"),
        modulation=scales / (layers + twins + parallel),
        twin_layers=twins,
        notes=("tokens of the text are not counted: --seq with both",) if twins else (),
    )


def vision_encoder(raw: Raw, name: str) -> ModelConfig:
    """Layers over the patches of an image and, in most, one token for its class."""
    sizes = Sizes(raw, name)
    layers, hidden, heads = sizes.stack()
    patches = _patches(raw, "image_size")
    ffn = sizes.number("ffn") or round(float(raw.get("mlp_ratio") or 4) * hidden)
    if swiglu := bool(raw.get("use_swiglu_ffn")):  # DINOv2: as many weights as without a gate
        ffn = 8 * math.ceil(2 * ffn / 3 / 8)
    return _encoder(
        name,
        sizes,
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        gated=swiglu or "glu" in activation_of(raw),
        tokens=patches + 1 if patches else None,
        table_params=(patches + 1 + _pixels(raw)) * hidden if patches else 0,
    )


def _encoder(
    name: str,
    sizes: Sizes,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    tokens: int | None,
    gated: bool = False,
    table_params: int = 0,
    modulation: float = 0.0,
    twin_layers: int = 0,
    notes: tuple[str, ...] = (),
) -> ModelConfig:
    return ModelConfig(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=sizes.number("kv_heads") or heads,
        head_dim=sizes.head_dim(hidden, heads),
        ffn=ffn,
        vocab=0,
        gated=gated,
        causal=False,
        tokens=tokens,
        table_params=table_params,
        modulation=modulation,
        twin_layers=twin_layers,
        notes=notes,
    )


def _pixels(raw: Raw) -> int:
    """Numbers in one patch, each with a row of the matrix that reads it."""
    return int(raw.get("num_channels") or 3) * int(raw.get("patch_size") or 0) ** 2


def _patches(raw: Raw, key: str) -> int | None:
    """Patches of one image; None if a size is not stated."""
    image, patch = raw.get(key), raw.get("patch_size")
    if isinstance(image, list):
        image = image[0]
    if not isinstance(image, int) or not isinstance(patch, int) or patch < 1:
        return None
    return (image // patch) ** 2
