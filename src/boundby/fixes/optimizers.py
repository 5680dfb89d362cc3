"""Optimizers as they would be made with other arguments."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator
from typing import Any

from boundby.fixes.attributes import PatchSet, when_torch_arrives
from boundby.fixes.fix import Fix
from boundby.fixes.log import note

_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_NOTED = "fused "


@contextlib.contextmanager
def fused_optimizers() -> Iterator[None]:
    """`fused=True` for every optimizer that has a fused form on its parameters' device."""

    def arrived(torch: Any, swaps: PatchSet) -> None:
        for name in _FUSED:
            swaps.swap(getattr(torch.optim, name), "__init__", _with_fused)

    with when_torch_arrives(arrived):
        yield


def _with_fused(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, params: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        # Looked at twice: a generator would be empty by then.
        params = [
            {**group, "params": list(group["params"])} if isinstance(group, dict) else group
            for group in params
        ]
        if kwargs.get("fused") or kwargs.get("differentiable") or not _can_fuse(params):
            original(self, params, *args, **kwargs)
            return
        try:
            original(self, params, *args, **(kwargs | {"fused": True, "foreach": None}))
        except (RuntimeError, TypeError, ValueError):
            original(self, params, *args, **kwargs)
        else:
            note(f"{_NOTED}{type(self).__name__}")

    return __init__


def _can_fuse(params: list[Any]) -> bool:
    """Fused kernels know real numbers only; some optimizers notice that at their first step."""
    groups = [group["params"] if isinstance(group, dict) else [group] for group in params]
    # Named parameters come as pairs.
    plain = [one[-1] if isinstance(one, tuple) else one for group in groups for one in group]
    return all(parameter.is_floating_point() for parameter in plain)


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
    """The script's own optimizers, each with the argument."""
    made = sorted(word.removeprefix(_NOTED) for word in touched if word.startswith(_NOTED))
    names = [f"torch.optim.{name}" if name in _FUSED else name for name in made]
    return "\n".join(f"{name}(..., fused=True)" for name in names or ["torch.optim.AdamW"])


FUSED = Fix(
    name="fused",
    change="torch.optim.AdamW(..., fused=True)  # or Adam, SGD, Adagrad",
    apply=fused_optimizers,
    written=_written,
)
GRADIENTS_TO_NONE = Fix(
    name="set-to-none",
    change="optimizer.zero_grad(set_to_none=True)",
    apply=gradients_set_to_none,
)
