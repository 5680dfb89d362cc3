"""Records the arguments of a step's outermost calls, on which a change is compared."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from boundby.prove.snapshots import UnrecordableError, detached_copy, named_tensors
from boundby.runtime.modules import parameters_of
from boundby.runtime.step_hooks import StepHook

_MAX_MODULES = 4  # time limit


@dataclass(slots=True)
class GradientUse:
    """Whether results of a module that carry a graph were seen, and a gradient of one."""

    is_known: bool = False
    is_used: bool = False

    def watch(self, torch: Any, result: Any) -> None:
        for _, tensor in named_tensors(torch, result):
            # A hook on a leaf, such as a parameter that is returned, would stay.
            if tensor.requires_grad and not tensor.is_leaf:
                with contextlib.suppress(RuntimeError):
                    tensor.register_hook(self._use)
                    self.is_known = True

    def _use(self, gradient: Any) -> None:
        self.is_used = True


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    """A call of an outermost module as the script makes it. `is_recorded`: by autograd."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool
    is_recorded: bool
    gradients: GradientUse = field(default_factory=GradientUse)
    autocast_to: tuple[str, Any] | None = None  # the script's own, by device and dtype

    @property
    def with_gradients(self) -> bool:
        """Whether gradients belong to its results: not where the script computes none."""
        return self.is_recorded and (self.gradients.is_used or not self.gradients.is_known)

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
        self._gradients: dict[tuple[int, bool], GradientUse] = {}  # by module and mode
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
        is_recorded = torch.is_grad_enabled()
        # A call in training is preferred to an evaluation of the same module.
        is_evaluation = not is_recorded or not called.training
        if recorded is not None and recorded.is_recorded and recorded.training and is_evaluation:
            return
        try:
            self.calls[id(called)] = RecordedCall(
                module=called,
                args=detached_copy(torch, args[1:] if args and args[0] is called else args),
                kwargs=detached_copy(torch, kwargs),
                training=called.training,
                is_recorded=is_recorded,
                gradients=self._use_of(called),
                autocast_to=_autocast_of(torch, called),
            )
        except UnrecordableError as why:
            self.calls.pop(id(called), None)
            self.skipped.append(f"the inputs of {type(called).__name__}, of which {why}")

    def call_ends(self, called: Any, result: Any) -> None:
        if self.is_open and id(called) in self.calls:
            self._use_of(called).watch(self._torch, result)

    def _use_of(self, module: Any) -> GradientUse:
        return self._gradients.setdefault((id(module), module.training), GradientUse())


def _autocast_of(torch: Any, module: Any) -> tuple[str, Any] | None:
    first = next(parameters_of(module), None)
    device = first.device.type if first is not None else "cpu"
    if not torch.is_autocast_enabled(device):
        return None
    return device, torch.get_autocast_dtype(device)
