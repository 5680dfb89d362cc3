"""Fused attention kernels: a model's own switch, and torch's backends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives
from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.fixes.masks import CHANGE as NO_MASKS
from boundby.fixes.masks import skip_unneeded_masks
from boundby.fixes.root_modules import outermost_modules

_SWITCH = "_attn_implementation"
# Names as in `torch.backends.cuda`.
_BACKENDS = {"flash": "flash_sdp", "cudnn": "cudnn_sdp", "efficient": "mem_efficient_sdp"}


@contextlib.contextmanager
def fused_attention() -> Iterator[None]:
    """Models of transformers use torch's attention; `nn.MultiheadAttention` returns no weights."""

    def arrived(torch: Any, swaps: PatchSet) -> None:
        swaps.swap(torch.nn.MultiheadAttention, "forward", _without_weights)

    with when_torch_arrives(arrived), outermost_modules(_switch):
        yield


def _switch(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], None] | None:
    configs = {
        id(part.config): part.config
        for part in module.modules()
        if hasattr(getattr(part, "config", None), _SWITCH)
    }
    eager = [one for one in configs.values() if getattr(one, _SWITCH) in (None, "eager")]
    if not eager:
        return None
    before = [(one, getattr(one, _SWITCH)) for one in eager]
    if hasattr(module, "set_attn_implementation"):
        module.set_attn_implementation("sdpa")
    for one in eager:
        setattr(one, _SWITCH, "sdpa")
    note(f"attention of {type(module).__name__}")
    masks = skip_unneeded_masks()

    def undo() -> None:
        masks.undo()
        for config, switch in before:
            setattr(config, _SWITCH, switch)

    return undo


def _without_weights(original: Any) -> Any:
    @functools.wraps(original)
    def forward(self: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        # Weights are returned by default: the second positional argument after the mask.
        if len(args) < 2 and kwargs.get("need_weights", True):
            kwargs["need_weights"] = False
            note("attention weights not kept")
        return original(self, query, key, value, *args, **kwargs)

    return forward


@contextlib.contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """Allow one fused backend of `scaled_dot_product_attention` alone, with plain math as a
    fallback."""

    def arrived(torch: Any, swaps: PatchSet) -> None:
        switches = torch.backends.cuda
        for backend, switch in _BACKENDS.items():
            before = getattr(switches, f"{switch}_enabled")()
            enable = getattr(switches, f"enable_{switch}")
            enable(backend == name)
            swaps.later(partial(enable, before))
        swaps.swap(torch.nn.functional, "scaled_dot_product_attention", _noted)

    with when_torch_arrives(arrived):
        yield


def _noted(original: Any) -> Any:
    import torch

    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def attention(*args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            note("attention backend")
        return original(*args, **kwargs)

    return attention


SDPA = Fix(
    name="sdpa",
    change='attn_implementation="sdpa"  # or F.scaled_dot_product_attention, need_weights=False\n'
    f"{NO_MASKS}  # if compiled, with nothing padded",
    apply=fused_attention,
    always_tried=True,
)
CUDNN_ATTENTION = Fix(
    name="sdpa:cudnn",
    change="with torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION): ...",
    apply=partial(attention_backend, "cudnn"),
    devices=("cuda",),
    slot="attention backend",
)
FLASH_ATTENTION = Fix(
    name="sdpa:flash",
    change="with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION): ...",
    apply=partial(attention_backend, "flash"),
    devices=("cuda",),
    slot="attention backend",
)
EFFICIENT_ATTENTION = Fix(
    name="sdpa:efficient",
    change="with torch.nn.attention.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION): ...",
    apply=partial(attention_backend, "efficient"),
    devices=("cuda",),
    slot="attention backend",
)
