"""Optimizers constructed with other arguments."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives
from boundby.fixes.fix import Fix
from boundby.fixes.fused_optimizer import FUSED_CLASSES, fused_switch
from boundby.fixes.log import note

_NOTED = "fused "


@contextlib.contextmanager
def gradients_set_to_none() -> Iterator[None]:
    """`zero_grad` drops gradients instead of writing zeros."""

    def arrived(torch: Any, swaps: PatchSet) -> None:
        swaps.swap(torch.optim.Optimizer, "zero_grad", _to_none)
        swaps.swap(torch.nn.Module, "zero_grad", _to_none)

    with when_torch_arrives(arrived):
        yield


def _to_none(original: Any) -> Any:
    @functools.wraps(original)
    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        if not set_to_none:
            note("gradients set to None")
        original(self, set_to_none=True)

    return zero_grad


def _written(touched: Collection[str]) -> str:
    """The script's own optimizers, each with the argument added."""
    made = sorted(word.removeprefix(_NOTED) for word in touched if word.startswith(_NOTED))
    names = [f"torch.optim.{name}" if name in FUSED_CLASSES else name for name in made]
    return "\n".join(f"{name}(..., fused=True)" for name in names or ["torch.optim.AdamW"])


FUSED = Fix(
    name="fused",
    change="torch.optim.AdamW(..., fused=True)  # or Adam, SGD, Adagrad",
    switch=fused_switch,
    always_tried=True,
    keeps_compiled=True,
    written=_written,
)
GRADIENTS_TO_NONE = Fix(
    name="set-to-none",
    change="optimizer.zero_grad(set_to_none=True)",
    apply=gradients_set_to_none,
    keeps_compiled=True,
)
