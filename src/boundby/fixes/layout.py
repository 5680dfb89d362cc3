"""Channels last: images and convolutions as the fast kernels want them, without copies between."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.fixes.root_modules import outermost_modules


def channels_last() -> contextlib.AbstractContextManager[None]:
    return outermost_modules(_convert)


def _convert(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], None] | None:
    import torch

    if not any(isinstance(part, torch.nn.Conv2d) for part in module.modules()):
        return None
    module.to(memory_format=torch.channels_last)
    note(f"channels last in {type(module).__name__}")

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point():
            return value.contiguous(memory_format=torch.channels_last)
        return value

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tuple(map(convert, args)), {name: convert(value) for name, value in kwargs.items()}

    handle = module.register_forward_pre_hook(before, with_kwargs=True)

    def undo() -> None:
        handle.remove()
        module.to(memory_format=torch.contiguous_format)

    return undo


CHANNELS_LAST = Fix(
    name="channels-last",
    change="model = model.to(memory_format=torch.channels_last)  # and the images alike",
    apply=channels_last,
)
