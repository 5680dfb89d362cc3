"""The outermost modules compiled in place, before their first call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from boundby.program.outermost import outermost_modules
from boundby.program.touched import note
from boundby.program.treatment import Treatment


def compiled(mode: str | None = None) -> contextlib.AbstractContextManager[None]:
    return outermost_modules(partial(_compile, mode=mode))


def _compile(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, mode: str | None
) -> Callable[[], None] | None:
    # Compiled by the script: an OptimizedModule, or in place.
    if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
        return None
    module.compile(mode=mode)
    note(f"compiled {type(module).__name__}")

    def undo() -> None:
        module._compiled_call_impl = None

    return undo


# About what a model of a dozen layers takes with nothing cached: only to know what may still fit.
_COMPILING_S, _TUNING_S = 30.0, 240.0
_FUSED = ("unfused-operators", "repeated-casts", "wasted-tiles")

COMPILE = Treatment(
    name="compile",
    change="model = torch.compile(model)",
    apply=compiled,
    preparation_s=_COMPILING_S,
    slot="compilation",
    covers=_FUSED,
)
REDUCE_OVERHEAD = Treatment(
    name="compile:reduce-overhead",
    change='model = torch.compile(model, mode="reduce-overhead")',
    apply=partial(compiled, "reduce-overhead"),
    devices=("cuda",),
    preparation_s=_COMPILING_S,
    slot="compilation",
    covers=(*_FUSED, "eager-launches"),
)
MAX_AUTOTUNE = Treatment(
    name="compile:max-autotune",
    change='model = torch.compile(model, mode="max-autotune")',
    apply=partial(compiled, "max-autotune"),
    preparation_s=_TUNING_S,
    slot="compilation",
    covers=(*_FUSED, "eager-launches"),
)
