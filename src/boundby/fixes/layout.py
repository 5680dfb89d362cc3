"""Channels last: the memory layout of fast convolution kernels, without copies between layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from boundby.fixes.fix import Fix
from boundby.fixes.log import note
from boundby.fixes.switch import Program
from boundby.runtime.modules import parameters_of


class ChannelsLast:
    """Changes 4-D parameters, their gradients and optimizer states, and the inputs of each call."""

    def __init__(self, program: Program, models: Sequence[Any]) -> None:
        self.objects = models
        self._program = program
        self._torch = program.torch
        self._handles: list[Any] = []
        # A parameter and its buffers by their places: later replacements get the same layout.
        self._before: list[tuple[Any, tuple[int, ...]]] = []

    def on(self) -> None:
        last = self._torch.channels_last
        self._before = []
        for tensor in self._tensors():
            self._before.append((tensor, tensor.stride()))
            tensor.data = tensor.data.contiguous(memory_format=last)
        for model in self.objects:
            hook = model.register_forward_pre_hook(self._convert, with_kwargs=True)
            self._handles.append(hook)
            note(f"channels last in {type(model).__name__}")

    def off(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        strides = {id(tensor): stride for tensor, stride in self._before}
        for tensor in self._tensors():
            stride = strides.get(id(tensor))
            if stride is None:  # made since: a gradient or a state, in the layout of its parameter
                tensor.data = tensor.data.contiguous()
            elif tensor.stride() != stride:
                restored = self._torch.empty_strided(
                    tensor.shape, stride, dtype=tensor.dtype, device=tensor.device
                )
                tensor.data = restored.copy_(tensor.data)
        self._before = []

    def _tensors(self) -> Iterator[Any]:
        """All 4-D tensors that follow the weights' layout."""
        torch = self._torch
        own = [p for model in self.objects for p in parameters_of(model) if p.dim() == 4]
        for parameter in {id(p): p for p in own}.values():
            yield parameter
            if parameter.grad is not None and parameter.grad.dim() == 4:
                yield parameter.grad
            for optimizer in self._program.optimizers:
                for value in optimizer.state.get(parameter, {}).values():
                    if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                        yield value

    def _convert(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tuple(map(self._image, args)), {k: self._image(v) for k, v in kwargs.items()}

    def _image(self, value: Any) -> Any:
        torch = self._torch
        if isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point():
            return value.contiguous(memory_format=torch.channels_last)
        return value


def _switch(program: Program) -> ChannelsLast | None:
    torch = program.torch
    models = [
        model
        for model in program.models
        if any(isinstance(part, torch.nn.Conv2d) for part in model.modules())
        and not any(type(p.data) is not torch.Tensor for p in parameters_of(model))
    ]
    return ChannelsLast(program, models) if models else None


CHANNELS_LAST = Fix(
    name="channels-last",
    change="model = model.to(memory_format=torch.channels_last)  # and the images alike",
    switch=_switch,
)
