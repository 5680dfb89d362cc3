"""Compares recorded calls with and without a change: same weights, inputs and random state.

The program's weights, buffers, gradients, optimizers and random state are restored after. Dropout
is off where results are compared one by one; where a forward draws other random numbers, several
seeds are compared by their means and their spread.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from boundby.fixes.precision import switch_autocast_off
from boundby.model.proof import Numerics
from boundby.prove import numerics
from boundby.prove.call_recorder import RecordedCall
from boundby.prove.communication import is_sharded, local_calls
from boundby.prove.dropout_off import dropout_off
from boundby.prove.numerics import UNITS, QuantityComparison, Sampled, Vector
from boundby.prove.snapshots import (
    cast,
    described,
    detached_copy,
    is_plain,
    named_tensors,
    random_state,
    restored_state,
)
from boundby.runtime.patching import PatchSet
from boundby.runtime.step_hooks import active_hooks

# Sampled values per tensor.
_MAX_VALUES = 8192
_SEEDS = 6
_SEED = 20_261_118
# A copy of a module in higher precision is made if it needs at most this share of free memory.
_MAX_MEMORY_SHARE = 0.4

SetVariant = Callable[[bool], None]  # with the change, or without


class Checks:
    """Compares one program with itself under a change that `set_variant` switches."""

    def __init__(
        self,
        torch: Any,
        calls: Sequence[RecordedCall],
        optimizers: Sequence[Any],
        skipped: Sequence[str],
    ) -> None:
        self._torch = torch
        self._calls = calls
        self._optimizers = optimizers
        self._skipped = list(skipped)
        self._as_called = False
        self._off: Callable[[Any, Any], contextlib.AbstractContextManager[None]] = dropout_off

    def verdict(
        self,
        set_variant: SetVariant,
        precision: str | None,
        *,
        as_called: bool = False,
    ) -> Numerics:
        """Compare and return the verdict. `as_called`: the calls only as the script makes them,
        with dropout. In another mode or without dropout, code would be compiled or captured anew,
        or a graph captured with dropout would be compared with a call without."""
        self._as_called = as_called
        self._off = _unchanged if as_called else dropout_off
        torch = self._torch
        compared: list[QuantityComparison] = []
        skipped = list(self._skipped)
        calls = [call for call in self._calls if not is_sharded(torch, call.module)]
        if len(calls) < len(self._calls):
            skipped.append("a sharded module, of which each rank has a part")
        modules = [call.module for call in calls]
        with restored_state(torch, modules, []), local_calls(torch, modules):
            try:
                for call in calls:
                    compared += self._compare_call(call, set_variant, precision, skipped)
                    if any(not one.ok for one in compared):
                        break
                if all(one.ok for one in compared):
                    compared += self._compare_updates(set_variant, skipped)
            except torch.OutOfMemoryError:
                skipped.append("tensors that do not fit into memory twice")
                _free(torch)
            finally:
                set_variant(False)
        return numerics.verdict(compared, skipped)

    def _compare_call(
        self,
        call: RecordedCall,
        set_variant: SetVariant,
        precision: str | None,
        skipped: list[str],
    ) -> list[QuantityComparison]:
        torch = self._torch
        own_mode = call.training
        is_one_mode = self._as_called or not call.with_gradients
        modes = [own_mode] if is_one_mode else [own_mode, not own_mode]
        compared: list[QuantityComparison] = []
        for training in modes:
            words = f" of {type(call.module).__name__}" + ("" if training else " in eval mode")
            run = _Run(torch, call, training, skipped)
            set_variant(False)
            if call.module.training != training:
                call.module.train(training)
            try:
                with self._off(torch, call.module):
                    base, draws = run.sampled()
            except Exception as error:
                if training == own_mode:
                    skipped.append(f"{type(call.module).__name__}, which fails when called again")
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                continue
            if not base.outputs and not base.gradients:
                continue
            if draws:
                compared += self._compare_drawn(run, base, set_variant, precision, words)
                continue
            compared += self._compare_exactly(run, base, set_variant, precision, words)
            if training and all(one.ok for one in compared) and self._has_dropout(run, set_variant):
                compared += self._compare_draws(run, set_variant)
        return compared

    def _compare_exactly(
        self, run: _Run, base: Sampled, set_variant: SetVariant, precision: str | None, mode: str
    ) -> list[QuantityComparison]:
        own = run.precision
        with self._off(self._torch, run.call.module):
            reference = run.reference()
            set_variant(True)
            fixed, _ = run.sampled()
            set_variant(False)
            unit = max(UNITS.get(precision or own, UNITS["bfloat16"]), UNITS["float32"])
            if precision is None and own in UNITS:
                unit = max(unit, UNITS[own] if own != "float64" else UNITS["float64"])
            truth = reference or base
            found = list(numerics.compare(base, fixed, truth, unit=unit, mode=mode))
            if all(one.ok for one in found):
                return found
            # Does the program itself amplify rounding errors, as routing between experts does?
            perturbed = run.perturbed(unit)
        return list(numerics.compare(base, fixed, truth, unit=unit, perturbed=perturbed, mode=mode))

    def _compare_drawn(
        self, run: _Run, base: Sampled, set_variant: SetVariant, precision: str | None, mode: str
    ) -> list[QuantityComparison]:
        """Compare values if both runs draw the same random numbers, else their means and spread."""
        with self._off(self._torch, run.call.module):
            set_variant(True)
            fixed, _ = run.sampled()
            set_variant(False)
        unit = max(UNITS.get(precision or run.precision, 0.0), UNITS["float32"])
        found = list(numerics.compare(base, fixed, base, unit=unit, mode=mode))
        are_equal = all(one.ok for one in found if one.what.removesuffix(mode) in base.outputs)
        if are_equal:
            return found
        # Their gradients were not compared one by one either.
        return self._compare_draws(run, set_variant, gradients=True)

    def _has_dropout(self, run: _Run, set_variant: SetVariant) -> bool:
        set_variant(False)
        return run.sampled(gradients=False)[1]

    def _compare_draws(
        self, run: _Run, set_variant: SetVariant, *, gradients: bool = False
    ) -> list[QuantityComparison]:
        base, fixed = [], []
        for drawn, with_change in ((base, False), (fixed, True)):
            set_variant(with_change)
            for at in range(_SEEDS):
                drawn.append(run.sampled(seed=_SEED + at, gradients=gradients)[0])
        set_variant(False)
        found = numerics.compare_draws(
            [one.outputs for one in base], [one.outputs for one in fixed]
        )
        scale = numerics.compare_drawn_gradients(
            [one.gradients for one in base], [one.gradients for one in fixed]
        )
        return [*found, *scale]

    def _compare_updates(
        self, set_variant: SetVariant, skipped: list[str]
    ) -> list[QuantityComparison]:
        """One update of each optimizer, from the same gradients, with the change and without."""
        torch = self._torch
        compared: list[QuantityComparison] = []
        for optimizer in self._optimizers:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            if not parameters or any(
                not is_plain(torch, p) or (p.grad is not None and not is_plain(torch, p.grad))
                for p in parameters
            ):
                skipped.append(f"the update of {type(optimizer).__name__}")
                continue
            updates = []
            for with_change in (False, True):
                set_variant(False)
                with restored_state(torch, [], [optimizer]):
                    _set_gradients(torch, parameters)
                    set_variant(with_change)
                    before = [_sample(torch, p) for p in parameters]
                    try:
                        _notify_hooks("optimizer_begins", optimizer)
                        _step_optimizer(optimizer)
                    except TypeError:
                        break  # it needs a closure
                    updates.append(
                        {
                            str(at): _sample(torch, p) - was
                            for at, (p, was) in enumerate(zip(parameters, before, strict=True))
                        }
                    )
                    set_variant(False)
            if len(updates) == 2:
                dtype = str(parameters[0].dtype).removeprefix("torch.")
                tolerance = numerics.UPDATE_TOLERANCE.get(dtype, 2e-3)
                compared += numerics.compare_updates(updates[0], updates[1], tolerance)
            else:
                skipped.append(f"the update of {type(optimizer).__name__}")
        return compared


class _Run:
    """A recorded call that can be made again, in one mode."""

    def __init__(self, torch: Any, call: RecordedCall, training: bool, skipped: list[str]) -> None:
        self.call = call
        self._torch = torch
        self._training = training
        self._skipped = skipped
        first = next((p for p in call.module.parameters() if p.is_floating_point()), None)
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
        buffers = [(one, one.detach().clone()) for one in module.buffers()]
        restore = random_state(torch)
        args, kwargs = detached_copy(torch, call.args), detached_copy(torch, call.kwargs)
        if dtype is not None:
            args, kwargs = cast(torch, args, dtype), cast(torch, kwargs, dtype)
        try:
            if seed is not None:
                torch.manual_seed(seed)
            before = _states(torch)
            with torch.set_grad_enabled(call.with_gradients):
                _notify_hooks("call_begins", module, (module, *args), kwargs)
                with call.autocast(torch):
                    result = module(*args, **kwargs)
                _notify_hooks("call_ends", module, result)
            draws = any(not torch.equal(x, y) for x, y in zip(before, _states(torch), strict=True))
            outputs = dict(self._outputs(module, result))
            found = self._gradients(module, result, args, kwargs) if with_gradients else {}
            if not with_gradients:
                _notify_hooks("backward_begins", None)
        finally:
            restore()
            for parameter in module.parameters():
                parameter.grad = None
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
        return Sampled(outputs=outputs, gradients=found), draws

    def _outputs(self, module: Any, result: Any) -> Iterator[tuple[str, Vector]]:
        torch = self._torch
        for name, tensor in named_tensors(torch, result):
            if is_plain(torch, tensor):
                yield name, _sample(torch, tensor)
            elif tensor.is_floating_point() or tensor.is_complex():
                self._skipped.append(f"{name}, {described(torch, tensor)}")
        if self._training:
            for name, buffer in module.named_buffers():
                if is_plain(torch, buffer):
                    yield f"buffer {name}", _sample(torch, buffer)

    def _gradients(self, module: Any, result: Any, args: Any, kwargs: Any) -> dict[str, Vector]:
        """Gradients of the loss among the outputs, or else of a fixed projection of all outputs."""
        torch = self._torch
        tensors = [
            (name, one)
            for name, one in named_tensors(torch, result)
            if is_plain(torch, one) and one.requires_grad
        ]
        scalars = [one for name, one in tensors if one.numel() == 1 and "loss" in name]
        roots = scalars[:1] or [_projected(torch, one) for _, one in tensors]
        if not roots:
            _notify_hooks("backward_begins", None)
            return {}
        total = sum(root.sum().float() if root.dtype.itemsize < 4 else root.sum() for root in roots)
        _notify_hooks("backward_begins", total)
        total.backward()
        found = {}
        for name, parameter in module.named_parameters():
            gradient = parameter.grad
            if gradient is not None and is_plain(torch, gradient):
                found[name] = _sample(torch, gradient)
        for name, tensor in named_tensors(torch, (args, kwargs), "input"):
            if tensor.grad is not None and is_plain(torch, tensor.grad):
                found[name] = _sample(torch, tensor.grad)
        return found

    def reference(self) -> Sampled | None:
        """The results of a copy in float32 (on a CPU in float64); None if it cannot be made."""
        torch, call = self._torch, self.call
        first = next(call.module.parameters(), None)
        if first is None or not self._fits_in_memory(first):
            return None
        dtype = torch.float64 if first.device.type == "cpu" else torch.float32
        with _in_full_precision(torch):
            try:
                module = copy.deepcopy(call.module)
                module.to(dtype)
                for buffer in module.buffers():
                    if buffer.is_floating_point():
                        buffer.data = buffer.data.to(dtype)
                sampled, draws = self.sampled(module=module, dtype=dtype)
            except Exception:  # noqa: BLE001 - the user's code may fail in another dtype
                _free(torch)
                return None
        same = sampled.outputs.keys() and not draws
        return sampled if same else None

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
        kept = [p.detach().clone() for p in parameters]
        generators: dict[Any, Any] = {}
        try:
            with torch.no_grad():
                for parameter in parameters:
                    device = parameter.device
                    if device not in generators:
                        generators[device] = torch.Generator(device).manual_seed(_SEED)
                    noise = torch.empty_like(parameter).uniform_(
                        -unit / 2, unit / 2, generator=generators[device]
                    )
                    parameter.mul_(noise.add_(1))
            return self.sampled()[0]
        finally:
            with torch.no_grad():
                for parameter, value in zip(parameters, kept, strict=True):
                    parameter.copy_(value)


@contextlib.contextmanager
def _unchanged(torch: Any, module: Any) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _in_full_precision(torch: Any) -> Iterator[None]:
    """Switch autocast and tf32 off."""
    swaps = PatchSet()
    precision = torch.get_float32_matmul_precision()
    switch_autocast_off(torch, swaps)
    torch.set_float32_matmul_precision("highest")
    cudnn = torch.backends.cudnn.flags(allow_tf32=False)
    try:
        with cudnn:
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        swaps.undo()


def _sample(torch: Any, tensor: Any) -> Vector:
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


def _set_gradients(torch: Any, parameters: Sequence[Any]) -> None:
    generators: dict[Any, Any] = {}
    for parameter in parameters:
        device = parameter.device
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(_SEED)
        gradient = torch.empty_like(parameter, memory_format=torch.preserve_format)
        parameter.grad = gradient.normal_(std=1e-2, generator=generators[device])


def _step_optimizer(optimizer: Any) -> None:
    """Update without counting a scheduler's step or calling boundby's hooks."""
    optimizer.step()


def _notify_hooks(event: str, *args: Any) -> None:
    """Call the hooks of fixes that change the program, as for the script's own calls."""
    for one in tuple(active_hooks):
        getattr(one, event)(*args)


def _states(torch: Any) -> list[Any]:
    states = [torch.get_rng_state()]
    return states + (torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])


def _free(torch: Any) -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
