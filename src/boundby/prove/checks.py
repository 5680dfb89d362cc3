"""Runs recorded calls with and without a change, on the same weights, inputs and random state.

The program's weights, buffers, gradients, optimizers and random state are put back after. Dropout
is off where results are compared one by one; where a forward draws other random numbers, several
seeds are compared by their means and their spread.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from boundby.capture.process.patching import PatchSet
from boundby.capture.process.step_hooks import active_hooks
from boundby.fixes.precision import switch_autocast_off
from boundby.model.diagnosis import Numerics
from boundby.prove import numerics
from boundby.prove.call_recorder import RecordedCall
from boundby.prove.dropout_off import dropout_off
from boundby.prove.numerics import UNITS, Compared, Sampled, Vector
from boundby.prove.snapshots import (
    cast,
    copied,
    described,
    is_plain,
    named_tensors,
    random_state,
    state_kept,
)

# Of each tensor: enough to see it change, little enough to keep.
_MOST_VALUES = 8192
_SEEDS = 6
_SEED = 20_261_118
# A finer copy of a module is made where it takes no more than this share of the free memory.
_MOST_MEMORY = 0.4

SetArm = Callable[[bool], None]  # with the change, or without


class Checks:
    """Compares one program with itself under a change that `set_arm` switches."""

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
        self._off: Callable[[Any, Any], contextlib.AbstractContextManager[None]] = dropout_off

    def verdict(
        self, set_arm: SetArm, precision: str | None, *, expensive: bool, quick: bool = False
    ) -> Numerics:
        """`expensive`: another mode of the program costs another compilation; `quick`: there is
        no time for one without dropout either."""
        self._off = _as_it_is if quick else dropout_off
        torch = self._torch
        compared: list[Compared] = []
        skipped = list(self._skipped)
        modules = [call.module for call in self._calls]
        with state_kept(torch, modules, []):
            try:
                for call in self._calls:
                    compared += self._compare_call(call, set_arm, precision, expensive, skipped)
                    if any(not one.ok for one in compared):
                        break
                if all(one.ok for one in compared):
                    compared += self._compare_updates(set_arm, skipped)
            except torch.OutOfMemoryError:
                skipped.append("what does not fit into memory twice")
                _free(torch)
            finally:
                set_arm(False)
        return numerics.verdict(compared, skipped)

    def _compare_call(
        self,
        call: RecordedCall,
        set_arm: SetArm,
        precision: str | None,
        expensive: bool,
        skipped: list[str],
    ) -> list[Compared]:
        torch = self._torch
        own_mode = call.training
        modes = [own_mode] if expensive or not call.with_gradients else [own_mode, not own_mode]
        compared: list[Compared] = []
        for training in modes:
            words = f" of {type(call.module).__name__}" + ("" if training else " in eval mode")
            run = _Run(torch, call, training, skipped)
            set_arm(False)
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
                compared += self._compare_drawn(run, base, set_arm, precision, words)
                continue
            compared += self._compare_exactly(run, base, set_arm, precision, words)
            if training and all(one.ok for one in compared) and self._has_dropout(run, set_arm):
                compared += self._compare_draws(run, set_arm)
        return compared

    def _compare_exactly(
        self, run: _Run, base: Sampled, set_arm: SetArm, precision: str | None, mode: str
    ) -> list[Compared]:
        own = run.precision
        with self._off(self._torch, run.call.module):
            reference = run.reference()
            set_arm(True)
            fixed, _ = run.sampled()
            set_arm(False)
            unit = max(UNITS.get(precision or own, UNITS["bfloat16"]), UNITS["float32"])
            if precision is None and own in UNITS:
                unit = max(unit, UNITS[own] if own != "float64" else UNITS["float64"])
            truth = reference or base
            found = list(numerics.compare(base, fixed, truth, unit=unit, mode=mode))
            if all(one.ok for one in found):
                return found
            # Is it the program that multiplies small errors, as a choice between experts does?
            nudged = run.nudged(unit)
        return list(numerics.compare(base, fixed, truth, unit=unit, nudged=nudged, mode=mode))

    def _compare_drawn(
        self, run: _Run, base: Sampled, set_arm: SetArm, precision: str | None, mode: str
    ) -> list[Compared]:
        """One by one where a change draws the same numbers, else by their means and spread."""
        with self._off(self._torch, run.call.module):
            set_arm(True)
            fixed, _ = run.sampled()
            set_arm(False)
        unit = max(UNITS.get(precision or run.precision, 0.0), UNITS["float32"])
        found = list(numerics.compare(base, fixed, base, unit=unit, mode=mode))
        are_equal = all(one.ok for one in found if one.what.removesuffix(mode) in base.outputs)
        return found if are_equal else self._compare_draws(run, set_arm)

    def _has_dropout(self, run: _Run, set_arm: SetArm) -> bool:
        set_arm(False)
        return run.sampled(gradients=False)[1]

    def _compare_draws(self, run: _Run, set_arm: SetArm) -> list[Compared]:
        sampled = []
        for with_change in (False, True):
            set_arm(with_change)
            drawn = [run.sampled(seed=_SEED + at, gradients=False)[0] for at in range(_SEEDS)]
            sampled.append([one.outputs for one in drawn])
        set_arm(False)
        return list(numerics.compare_draws(*sampled))

    def _compare_updates(self, set_arm: SetArm, skipped: list[str]) -> list[Compared]:
        """One update of each optimizer, from the same gradients, with the change and without."""
        torch = self._torch
        compared: list[Compared] = []
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
                set_arm(False)
                with state_kept(torch, [], [optimizer]):
                    _set_gradients(torch, parameters)
                    set_arm(with_change)
                    before = [_sample(torch, p) for p in parameters]
                    try:
                        _companions("optimizer_begins", optimizer)
                        _unscheduled(optimizer)
                    except TypeError:
                        break  # it wants a closure
                    updates.append(
                        {
                            str(at): _sample(torch, p) - was
                            for at, (p, was) in enumerate(zip(parameters, before, strict=True))
                        }
                    )
                    set_arm(False)
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
        """What comes out, and whether random numbers were drawn."""
        torch, call = self._torch, self.call
        module = call.module if module is None else module
        with_gradients = call.with_gradients and gradients
        buffers = [(one, one.detach().clone()) for one in module.buffers()]
        restore = random_state(torch)
        args, kwargs = copied(torch, call.args), copied(torch, call.kwargs)
        if dtype is not None:
            args, kwargs = cast(torch, args, dtype), cast(torch, kwargs, dtype)
        try:
            if seed is not None:
                torch.manual_seed(seed)
            before = _states(torch)
            with torch.set_grad_enabled(call.with_gradients):
                _companions("call_begins", module, (module, *args), kwargs)
                with call.autocast(torch):
                    result = module(*args, **kwargs)
                _companions("call_ends", module, result)
            draws = any(not torch.equal(x, y) for x, y in zip(before, _states(torch), strict=True))
            outputs = dict(self._outputs(module, result))
            found = self._gradients(module, result, args, kwargs) if with_gradients else {}
            if not with_gradients:
                _companions("backward_begins", None)
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
        """Of a loss among the outputs, or else of a fixed projection of all of them."""
        torch = self._torch
        tensors = [
            (name, one)
            for name, one in named_tensors(torch, result)
            if is_plain(torch, one) and one.requires_grad
        ]
        scalars = [one for name, one in tensors if one.numel() == 1 and "loss" in name]
        roots = scalars[:1] or [_projected(torch, one) for _, one in tensors]
        if not roots:
            _companions("backward_begins", None)
            return {}
        total = sum(root.sum().float() if root.dtype.itemsize < 4 else root.sum() for root in roots)
        _companions("backward_begins", total)
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
        """A copy in float32, or in float64 on a CPU; None where none can be made."""
        torch, call = self._torch, self.call
        first = next(call.module.parameters(), None)
        if first is None or not self._fits(first):
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
            except Exception:  # noqa: BLE001 - the program's own code runs in another dtype
                _free(torch)
                return None
        same = sampled.outputs.keys() and not draws
        return sampled if same else None

    def _fits(self, first: Any) -> bool:
        torch = self._torch
        if first.device.type != "cuda":
            return True
        size = 8 * sum(p.numel() for p in self.call.module.parameters())
        free, _ = torch.cuda.mem_get_info(first.device)
        return bool(size < _MOST_MEMORY * free)

    def nudged(self, unit: float) -> Sampled:
        """The program with its weights rounded by as much as a result is."""
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
def _as_it_is(torch: Any, module: Any) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _in_full_precision(torch: Any) -> Iterator[None]:
    """No autocast, no tf32, whatever the script asks for."""
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
    if len(flat) > _MOST_VALUES:
        places = torch.arange(_MOST_VALUES, device=flat.device, dtype=torch.int64)
        flat = flat[places * (len(flat) - 1) // (_MOST_VALUES - 1)]
    values = np.asarray(flat.double().cpu())
    return np.append(values, float(length) / max(1.0, len(values)) ** 0.5)


def _projected(torch: Any, tensor: Any) -> Any:
    """A fixed weighted sum: that of all elements alone is constant behind a softmax."""
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


def _unscheduled(optimizer: Any) -> None:
    """An update that no scheduler counts, and no hook of ours."""
    optimizer.step()


def _companions(event: str, *told: Any) -> None:
    """What changes the program hears of the call, as it does of those of the script."""
    for one in tuple(active_hooks):
        getattr(one, event)(*told)


def _states(torch: Any) -> list[Any]:
    states = [torch.get_rng_state()]
    return states + (torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])


def _free(torch: Any) -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
