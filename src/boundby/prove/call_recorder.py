"""The arguments of the outermost calls of a step: what a change is compared on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boundby.capture.process.step_hooks import StepHook
from boundby.prove.snapshots import UnrecordableError, copied

_MOST_MODULES = 4


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    """A call of an outermost module as the script makes it."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool
    with_gradients: bool


class CallRecorder(StepHook):
    """Keeps the last call of each outermost module while it is open."""

    def __init__(self, torch: Any) -> None:
        self.is_open = True
        self.calls: dict[int, RecordedCall] = {}
        self.skipped: list[str] = []
        self._torch = torch

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        torch = self._torch
        if not self.is_open:
            return
        if not isinstance(called, torch.nn.Module):
            self.skipped.append("calls of functions that are no modules")
            return
        known = self.calls.get(id(called))
        if known is None and len(self.calls) >= _MOST_MODULES:
            return
        with_gradients = torch.is_grad_enabled()
        # A call that trains says more than an evaluation of the same module.
        if known is not None and known.with_gradients and not with_gradients:
            return
        try:
            self.calls[id(called)] = RecordedCall(
                module=called,
                args=copied(torch, args[1:] if args and args[0] is called else args),
                kwargs=copied(torch, kwargs),
                training=called.training,
                with_gradients=with_gradients,
            )
        except UnrecordableError as why:
            self.calls.pop(id(called), None)
            self.skipped.append(f"the inputs of {type(called).__name__}, of which {why}")
