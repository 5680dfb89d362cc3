"""Calls models in evaluation mode without recording gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.fixes.switch import Program


class UnrecordedEvaluation:
    """Calls of models in evaluation mode run in `torch.no_grad()`; those in training mode do not.

    A script that trains through a model in evaluation mode then gets no gradients from it, which
    the numerical check finds.
    """

    def __init__(self, torch: Any, models: Sequence[Any]) -> None:
        self.objects = models
        self._torch = torch
        self._handles: list[Any] = []
        self._open: list[Any] = []

    def on(self) -> None:
        for model in self.objects:
            self._handles.append(model.register_forward_pre_hook(self._begins, prepend=True))
            self._handles.append(model.register_forward_hook(self._ends, always_call=True))

    def off(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begins(self, model: Any, args: tuple[Any, ...]) -> None:
        entered = None
        if not model.training and self._torch.is_grad_enabled():
            entered = self._torch.no_grad()
            entered.__enter__()
            note("evaluation without gradients")
        self._open.append(entered)

    def _ends(self, model: Any, args: tuple[Any, ...], result: Any) -> None:
        entered = self._open.pop() if self._open else None
        if entered is not None:
            entered.__exit__(None, None, None)


def unrecorded_switch(program: Program) -> UnrecordedEvaluation | None:
    plain = [
        one for one in program.models if isinstance(one, program.torch.nn.Module) and _is_plain(one)
    ]
    return UnrecordedEvaluation(program.torch, plain) if plain else None


def _is_plain(model: Any) -> bool:
    """Whether it can get a hook: compiled modules would be compiled again, and hooks are not
    traced."""
    return not hasattr(model, "_orig_mod") and not hasattr(model, "_c")


UNRECORDED_EVALUATION = Fix(
    name="no-grad",
    change="with torch.no_grad():  # around calls without a backward pass",
    switch=unrecorded_switch,
)
