"""Records the arguments of a step's outermost calls, on which a change is compared."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from boundby.prove.snapshots import UnrecordableError, detached_copy
from boundby.runtime.step_hooks import StepHook

_MAX_MODULES = 4  # time limit


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    """A call of an outermost module as the script makes it."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool
    with_gradients: bool
    autocast_to: tuple[str, Any] | None = None  # the script's own, by device and dtype

    def autocast(self, torch: Any) -> contextlib.AbstractContextManager[Any]:
        """The autocast that the script had set around the call."""
        if self.autocast_to is None:
            return contextlib.nullcontext()
        device, dtype = self.autocast_to
        context: contextlib.AbstractContextManager[Any] = torch.autocast(device, dtype=dtype)
        return context


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
        recorded = self.calls.get(id(called))
        if recorded is None and len(self.calls) >= _MAX_MODULES:
            return
        with_gradients = torch.is_grad_enabled()
        # A call in training is preferred to an evaluation of the same module.
        if recorded is not None and recorded.with_gradients and not with_gradients:
            return
        try:
            self.calls[id(called)] = RecordedCall(
                module=called,
                args=detached_copy(torch, args[1:] if args and args[0] is called else args),
                kwargs=detached_copy(torch, kwargs),
                training=called.training,
                with_gradients=with_gradients,
                autocast_to=_autocast_of(torch, called),
            )
        except UnrecordableError as why:
            self.calls.pop(id(called), None)
            self.skipped.append(f"the inputs of {type(called).__name__}, of which {why}")


def _autocast_of(torch: Any, module: Any) -> tuple[str, Any] | None:
    first = next(module.parameters(), None)
    device = first.device.type if first is not None else "cpu"
    if not torch.is_autocast_enabled(device):
        return None
    return device, torch.get_autocast_dtype(device)
