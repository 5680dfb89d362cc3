"""Makes a recorded call again and samples its results; the module is restored afterwards."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from boundby.fixes.precision import switch_autocast_off
from boundby.prove.call_recorder import RecordedCall
from boundby.prove.numerics import Sampled, Vector
from boundby.prove.snapshots import (
    cast,
    described,
    detached_copy,
    is_plain,
    named_tensors,
    random_state,
)
from boundby.runtime.modules import buffers_of, parameters_of
from boundby.runtime.patching import PatchSet
from boundby.runtime.step_hooks import active_hooks

# Sampled values per tensor.
_MAX_VALUES = 8192
SEED = 20_261_118  # arbitrary, and the same in every run
# A copy of a module in higher precision is made if it needs at most this share of free memory.
_MAX_MEMORY_SHARE = 0.4


class CallRerun:
    """A recorded call that can be made again, in one mode."""

    def __init__(self, torch: Any, call: RecordedCall, training: bool, skipped: list[str]) -> None:
        self.call = call
        self._torch = torch
        self._training = training
        self._skipped = skipped
        first = next((p for p in parameters_of(call.module) if p.is_floating_point()), None)
        self.precision = str(first.dtype).removeprefix("torch.") if first is not None else "float32"

    def sampled(
        self,
        *,
        module: Any = None,
        dtype: Any = None,
        seed: int | None = None,
        gradients: bool = True,
    ) -> tuple[Sampled, bool]:
        """The results of one run, and whether random numbers were drawn."""
        torch, call = self._torch, self.call
        module = call.module if module is None else module
        with_gradients = call.with_gradients and gradients
        buffers = [(buffer, buffer.detach().clone()) for buffer in buffers_of(module)]
        restore = random_state(torch)
        args, kwargs = detached_copy(torch, call.args), detached_copy(torch, call.kwargs)
        if dtype is not None:
            args, kwargs = cast(torch, args, dtype), cast(torch, kwargs, dtype)
        try:
            if seed is not None:
                torch.manual_seed(seed)
            before = _states(torch)
            with torch.set_grad_enabled(call.is_recorded):
                notify_hooks("call_begins", module, (module, *args), kwargs)
                with call.autocast(torch):
                    result = module(*args, **kwargs)
                notify_hooks("call_ends", module, result)
            draws = any(not torch.equal(x, y) for x, y in zip(before, _states(torch), strict=True))
            outputs = dict(self._outputs(module, result))
            gradient_samples = (
                self._gradients(module, result, args, kwargs) if with_gradients else {}
            )
            if not with_gradients:
                notify_hooks("backward_begins", None)
        finally:
            restore()
            for parameter in parameters_of(module):
                parameter.grad = None
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
        return Sampled(outputs=outputs, gradients=gradient_samples), draws

    def _outputs(self, module: Any, result: Any) -> Iterator[tuple[str, Vector]]:
        torch = self._torch
        for name, tensor in named_tensors(torch, result):
            if is_plain(torch, tensor):
                yield name, sample(torch, tensor)
            elif tensor.is_floating_point() or tensor.is_complex():
                self._skipped.append(f"{name}, {described(torch, tensor)}")
        if self._training:
            for name, buffer in module.named_buffers():
                if is_plain(torch, buffer):
                    yield f"buffer {name}", sample(torch, buffer)

    def _gradients(self, module: Any, result: Any, args: Any, kwargs: Any) -> dict[str, Vector]:
        """Gradients of the loss among the outputs, or else of a fixed projection of all outputs."""
        torch = self._torch
        tensors = [
            (name, output)
            for name, output in named_tensors(torch, result)
            if is_plain(torch, output) and output.requires_grad
        ]
        scalars = [tensor for name, tensor in tensors if tensor.numel() == 1 and "loss" in name]
        roots = scalars[:1] or [_projected(torch, one) for _, one in tensors]
        if not roots:
            notify_hooks("backward_begins", None)
            return {}
        total = sum(root.sum().float() if root.dtype.itemsize < 4 else root.sum() for root in roots)
        notify_hooks("backward_begins", total)
        total.backward()
        samples = {}
        for name, parameter in module.named_parameters():
            gradient = parameter.grad
            if gradient is not None and is_plain(torch, gradient):
                samples[name] = sample(torch, gradient)
        for name, tensor in named_tensors(torch, (args, kwargs), "input"):
            if tensor.grad is not None and is_plain(torch, tensor.grad):
                samples[name] = sample(torch, tensor.grad)
        return samples

    def reference(self) -> Sampled | None:
        """The results of a copy in float32 (on a CPU in float64); None if it cannot be made."""
        torch, call = self._torch, self.call
        first = next(parameters_of(call.module), None)
        if first is None or not self._fits_in_memory(first):
            return None
        dtype = torch.float64 if first.device.type == "cpu" else torch.float32
        with _in_full_precision(torch), _uncompiled(torch):
            try:
                module = copy.deepcopy(call.module)
                module.to(dtype)
                for buffer in module.buffers():
                    if buffer.is_floating_point():
                        buffer.data = buffer.data.to(dtype)
                sampled, draws = self.sampled(module=module, dtype=dtype)
            except Exception:  # noqa: BLE001 - the user's code may fail in another dtype
                free_memory(torch)
                return None
        has_same_outputs = sampled.outputs.keys() and not draws
        return sampled if has_same_outputs else None

    def _fits_in_memory(self, first: Any) -> bool:
        torch = self._torch
        if first.device.type != "cuda":
            return True
        size = 8 * sum(p.numel() for p in self.call.module.parameters())
        free, _ = torch.cuda.mem_get_info(first.device)
        return bool(size < _MAX_MEMORY_SHARE * free)

    def perturbed(self, unit: float) -> Sampled:
        """The results with weights perturbed by one rounding error."""
        torch = self._torch
        parameters = [p for p in self.call.module.parameters() if p.is_floating_point()]
        originals = [p.detach().clone() for p in parameters]
        generators: dict[Any, Any] = {}
        try:
            with torch.no_grad():
                for parameter in parameters:
                    device = parameter.device
                    if device not in generators:
                        generators[device] = torch.Generator(device).manual_seed(SEED)
                    noise = torch.empty_like(parameter).uniform_(
                        -unit / 2, unit / 2, generator=generators[device]
                    )
                    parameter.mul_(noise.add_(1))
            return self.sampled()[0]
        finally:
            with torch.no_grad():
                for parameter, value in zip(parameters, originals, strict=True):
                    parameter.copy_(value)


def _uncompiled(torch: Any) -> contextlib.AbstractContextManager[Any]:
    """Compiled functions run as they are written: code for another dtype would be compiled."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


@contextlib.contextmanager
def _in_full_precision(torch: Any) -> Iterator[None]:
    """Switch autocast and tf32 off."""
    swaps = PatchSet()
    precision = torch.get_float32_matmul_precision()
    switch_autocast_off(torch, swaps)
    # Setting it, even to what it is, changes the newer settings of each backend.
    is_lower = precision != "highest"
    if is_lower:
        torch.set_float32_matmul_precision("highest")
    cudnn = torch.backends.cudnn.flags(allow_tf32=False)
    try:
        with cudnn:
            yield
    finally:
        if is_lower:
            torch.set_float32_matmul_precision(precision)
        swaps.undo()


def sample(torch: Any, tensor: Any) -> Vector:
    """Values spread evenly over a tensor, and its length: a copy on the host."""
    flat = tensor.detach().reshape(-1)
    length = flat.double().norm() if flat.device.type == "cpu" else flat.float().norm()
    if len(flat) > _MAX_VALUES:
        places = torch.arange(_MAX_VALUES, device=flat.device, dtype=torch.int64)
        flat = flat[places * (len(flat) - 1) // (_MAX_VALUES - 1)]
    values = np.asarray(flat.double().cpu())
    return np.append(values, float(length) / max(1.0, len(values)) ** 0.5)


def _projected(torch: Any, tensor: Any) -> Any:
    """A fixed weighted sum. (The plain sum is constant after a softmax.)"""
    weights = torch.arange(tensor.numel(), device=tensor.device, dtype=torch.float32)
    weights = torch.cos(weights * 0.7548776662).reshape(tensor.shape)
    return (tensor.float() if tensor.dtype.itemsize < 4 else tensor).mul(weights).mean()


def notify_hooks(event: str, *args: Any) -> None:
    """Call the hooks of fixes that change the program, as for the script's own calls."""
    for hook in tuple(active_hooks):
        getattr(hook, event)(*args)


def _states(torch: Any) -> list[Any]:
    states = [torch.get_rng_state()]
    return states + (torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])


def free_memory(torch: Any) -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
