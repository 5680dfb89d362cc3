"""Gradient checkpointing, added to repeated blocks or removed: trades memory for time."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from boundby.fixes.attributes import PatchSet
from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.fixes.memory_guard import MemoryGuard, cuda_memory
from boundby.fixes.root_modules import outermost_modules
from boundby.fixes.switch import Program

_FEWEST_BLOCKS = 3  # fewer are not worth checkpoints


def checkpointed_blocks() -> contextlib.AbstractContextManager[None]:
    """The repeated blocks of a model keep only their inputs, and run again in backward."""
    return outermost_modules(_checkpoint)


def _checkpoint(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], None] | None:
    blocks = _repeated(module)
    if not blocks:
        return None
    swaps = PatchSet()
    for block in blocks:
        swaps.swap(block, "forward", _run_again)
    note(f"{len(blocks)} blocks checkpointed")
    return swaps.undo


def _repeated(module: Any) -> list[Any]:
    """The children of the first list of equal blocks."""
    import torch

    for part in module.modules():
        if not isinstance(part, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        children: list[Any] = list(part)
        kind, count = Counter(map(type, children)).most_common(1)[0] if children else (None, 0)
        if kind is not None and count >= _FEWEST_BLOCKS:
            alike: list[Any] = [child for child in children if type(child) is kind]
            # Lists of single layers are not blocks.
            if any(True for _ in alike[0].children()):
                return alike
    return []


def _run_again(original: Any) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return original(*args, **kwargs)
        return checkpoint(original, *args, use_reentrant=False, **kwargs)

    return forward


_FLAG = "gradient_checkpointing"  # of the modules of transformers, diffusers and others


class WithoutCheckpointing:
    """`torch.utils.checkpoint` runs its function once and keeps what it needs."""

    def __init__(self, models: Sequence[Any]) -> None:
        self.objects = models
        self._swaps = PatchSet()
        self._has_run = False

    def on(self) -> None:
        import torch
        import torch.utils.checkpoint as checkpointing

        # Whether everything that is kept fits is unknown the first time.
        read = functools.partial(cuda_memory, torch)
        guard = None if self._has_run else MemoryGuard(read, torch.OutOfMemoryError)
        self._has_run = True
        self._swaps.swap(checkpointing, "checkpoint", partial(_run_once, guard))
        for model in self.objects:
            for part in model.modules():
                if vars(part).get(_FLAG) is True:
                    setattr(part, _FLAG, False)
                    self._swaps.later(partial(setattr, part, _FLAG, True))
                    note("a checkpoint taken off")

    def off(self) -> None:
        self._swaps.undo()


def _without(program: Program) -> WithoutCheckpointing:
    return WithoutCheckpointing(program.models)


_OPTIONS = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug")


def _run_once(guard: MemoryGuard | None, original: Any) -> Any:
    @functools.wraps(original)
    def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
        note("a checkpoint taken off")
        kept = {name: value for name, value in kwargs.items() if name not in _OPTIONS}
        if guard is not None:
            return guard.run(partial(function, *args, **kept))
        return function(*args, **kept)

    return checkpoint


CHECKPOINTS = Fix(
    name="checkpoints",
    change="x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
    apply=checkpointed_blocks,
)
NO_CHECKPOINTS = Fix(
    name="no-checkpoints",
    change="x = block(x)  # instead of checkpoint(block, x)",
    switch=_without,
    always_tried=True,
)
