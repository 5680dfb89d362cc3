"""Compiles the outermost modules in place; the eager modules are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from boundby.fixes.fix import Fix
from boundby.fixes.log import leave, note
from boundby.fixes.switch import Program

# Modes that replay CUDA graphs, into the same memory each time.
_GRAPHED = ("reduce-overhead", "max-autotune")


class CompiledModules:
    """`module._compiled_call_impl`, as `module.compile()` sets it; compiled once."""

    def __init__(self, torch: Any, modules: Sequence[Any], mode: str | None) -> None:
        self.objects = modules
        self._torch = torch
        self._mode = mode
        self._compiled: list[Any] = []

    def on(self) -> None:
        if not self._compiled:
            compile_call = partial(self._torch.compile, mode=self._mode)
            self._compiled = [
                _without_carried_caches(one, compile_call(one._call_impl), self._mode)
                for one in self.objects
            ]
        for module, compiled in zip(self.objects, self._compiled, strict=True):
            module._compiled_call_impl = compiled
            note(f"compiled {type(module).__name__}")

    def off(self) -> None:
        for module in self.objects:
            module._compiled_call_impl = None


def _without_carried_caches(module: Any, compiled: Any, mode: str | None) -> Callable[..., Any]:
    """Modules that pass a cache from call to call stay eager, because graphs overwrite it."""
    if mode not in _GRAPHED:
        return compiled  # type: ignore[no-any-return]

    def call(*args: Any, **kwargs: Any) -> Any:
        if _is_carried_on(args, kwargs):
            leave(
                "it makes CUDA graphs, whose next replay overwrites the cache that "
                f"{type(module).__name__} passes from call to call; "
                "with one of a fixed size it could"
            )
            return module._call_impl(*args, **kwargs)
        return compiled(*args, **kwargs)

    return call


def _is_carried_on(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call without gradients gets a cache whose tensors an earlier call has made.

    Caches of transformers say whether they are written in place, at fixed addresses; tuples of keys
    and values never are.
    """
    import torch

    if torch.is_grad_enabled():
        return False
    every = (*args, *kwargs.values())
    grows = any(getattr(one, "is_compileable", None) is False for one in every)
    return grows or isinstance(kwargs.get("past_key_values"), tuple)


def _switch(program: Program, *, mode: str | None) -> CompiledModules | None:
    # Compiled by the script: an OptimizedModule, or in place.
    plain = [
        one
        for one in program.models
        if not hasattr(one, "_orig_mod") and getattr(one, "_compiled_call_impl", None) is None
    ]
    return CompiledModules(program.torch, plain, mode) if plain else None


# About what a model of a dozen layers takes with an empty cache; used to decide what may still fit.
_COMPILING_S, _TUNING_S = 30.0, 240.0
_FUSED = ("unfused-operators", "repeated-casts", "wasted-tiles")

COMPILE = Fix(
    name="compile",
    change="model = torch.compile(model)",
    switch=partial(_switch, mode=None),
    preparation_s=_COMPILING_S,
    slot="compilation",
    covers=_FUSED,
)
REDUCE_OVERHEAD = Fix(
    name="compile:reduce-overhead",
    change='model = torch.compile(model, mode="reduce-overhead")',
    switch=partial(_switch, mode="reduce-overhead"),
    devices=("cuda",),
    preparation_s=_COMPILING_S,
    slot="compilation",
    covers=(*_FUSED, "eager-launches"),
)
MAX_AUTOTUNE = Fix(
    name="compile:max-autotune",
    change='model = torch.compile(model, mode="max-autotune")',
    switch=partial(_switch, mode="max-autotune"),
    preparation_s=_TUNING_S,
    slot="compilation",
    covers=(*_FUSED, "eager-launches"),
)
