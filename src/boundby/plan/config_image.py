"""Models of images: vision encoders and diffusion transformers."""

from __future__ import annotations

from boundby.plan.config_values import Raw, Sizes, activation_of, kind_of
from boundby.plan.model_config import ModelConfig

_VISION = ("vit", "siglip", "dinov2", "beit", "deit", "clip_vision", "ijepa")


def is_diffusion(raw: Raw) -> bool:
    """Whether it is a transformer of the diffusers library."""
    name = str(raw.get("_class_name", ""))
    return "Transformer2D" in name or "Transformer3D" in name or kind_of(raw) == "dit"


def is_vision(raw: Raw) -> bool:
    return kind_of(raw).startswith(_VISION) or "vision_model" in kind_of(raw)


def diffusion_transformer(raw: Raw, name: str) -> ModelConfig:
    """Layers that a condition scales and shifts. Of two streams, one is counted per token."""
    sizes = Sizes(raw, name)
    layers, hidden, heads = sizes.stack()
    return _encoder(
        name,
        sizes,
        layers=layers + int(raw.get("num_single_layers") or 0),
        hidden=hidden,
        heads=heads,
        tokens=_patches(raw, "sample_size"),
        modulated=True,
    )


def vision_encoder(raw: Raw, name: str) -> ModelConfig:
    """Layers over the patches of an image and, in most, one token for its class."""
    sizes = Sizes(raw, name)
    layers, hidden, heads = sizes.stack()
    patches = _patches(raw, "image_size")
    return _encoder(
        name,
        sizes,
        layers=layers,
        hidden=hidden,
        heads=heads,
        gated="glu" in activation_of(raw) or bool(raw.get("use_swiglu_ffn")),
        tokens=patches + 1 if patches else None,
    )


def _encoder(
    name: str,
    sizes: Sizes,
    *,
    layers: int,
    hidden: int,
    heads: int,
    tokens: int | None,
    gated: bool = False,
    modulated: bool = False,
) -> ModelConfig:
    return ModelConfig(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=sizes.number("kv_heads") or heads,
        head_dim=sizes.number("head_dim") or hidden // heads,
        ffn=sizes.number("ffn") or 4 * hidden,
        vocab=0,
        gated=gated,
        causal=False,
        tokens=tokens,
        modulated=modulated,
    )


def _patches(raw: Raw, key: str) -> int | None:
    """Patches of one image; None if a size is not stated."""
    image, patch = raw.get(key), raw.get("patch_size")
    if isinstance(image, list):
        image = image[0]
    if not isinstance(image, int) or not isinstance(patch, int) or patch < 1:
        return None
    return (image // patch) ** 2
