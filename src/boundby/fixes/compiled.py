"""The outermost modules compiled in place, before their first call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from boundby.fixes.fix import Fix
from boundby.fixes.log import leave, note
from boundby.fixes.root_modules import outermost_modules

# Modes that replay CUDA graphs, into the same memory each time.
_GRAPHED = ("reduce-overhead", "max-autotune")


def compiled(mode: str | None = None) -> contextlib.AbstractContextManager[None]:
    return outermost_modules(partial(_compile, mode=mode))


def _compile(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, mode: str | None
) -> Callable[[], None] | None:
    # Compiled by the script: an OptimizedModule, or in place.
    if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
        return None
    if mode in _GRAPHED and _is_carried_on(args, kwargs):
        leave(
            "it makes CUDA graphs, whose next replay overwrites the cache that "
            f"{type(module).__name__} hands on from call to call; with one of a fixed size it could"
        )
        return None
    module.compile(mode=mode)
    note(f"compiled {type(module).__name__}")

    def undo() -> None:
        module._compiled_call_impl = None

    return undo


def _is_carried_on(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call without gradients gets a cache whose tensors an earlier call has made.

    Caches of transformers say whether they are written in place, at addresses that stay; tuples
    of keys and values never are.
    """
    import torch

    if torch.is_grad_enabled():
        return False
    every = (*args, *kwargs.values())
    grows = any(getattr(one, "is_compileable", None) is False for one in every)
    return grows or isinstance(kwargs.get("past_key_values"), tuple)


# About what a model of a dozen layers takes with nothing cached: only to know what may still fit.
_COMPILING_S, _TUNING_S = 30.0, 240.0
_FUSED = ("unfused-operators", "repeated-casts", "wasted-tiles")

COMPILE = Fix(
    name="compile",
    change="model = torch.compile(model)",
    apply=compiled,
    preparation_s=_COMPILING_S,
    again_s=_COMPILING_S,
    slot="compilation",
    covers=_FUSED,
)
REDUCE_OVERHEAD = Fix(
    name="compile:reduce-overhead",
    change='model = torch.compile(model, mode="reduce-overhead")',
    apply=partial(compiled, "reduce-overhead"),
    devices=("cuda",),
    preparation_s=_COMPILING_S,
    again_s=_COMPILING_S,
    slot="compilation",
    covers=(*_FUSED, "eager-launches"),
)
MAX_AUTOTUNE = Fix(
    name="compile:max-autotune",
    change='model = torch.compile(model, mode="max-autotune")',
    apply=partial(compiled, "max-autotune"),
    preparation_s=_TUNING_S,
    again_s=_COMPILING_S,  # what was tuned is remembered
    slot="compilation",
    covers=(*_FUSED, "eager-launches"),
)
