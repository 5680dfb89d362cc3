"""Compares recorded calls with and without a change: same weights, inputs and random state.

The program's weights, buffers, gradients, optimizers and random state are restored after. Dropout
is off where results are compared one by one; where a forward draws other random numbers, several
seeds are compared by their means and their spread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from boundby.model.proof import Numerics
from boundby.prove import numerics
from boundby.prove.call_recorder import RecordedCall
from boundby.prove.call_rerun import SEED, CallRerun, free_memory, notify_hooks, sample
from boundby.prove.communication import is_sharded, local_calls
from boundby.prove.dropout_off import dropout_off
from boundby.prove.numerics import UNITS, QuantityComparison, Sampled
from boundby.prove.snapshots import is_plain, restored_state

_SEEDS = 6  # enough to tell a missing dropout from a different mask

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
                    if any(not comparison.ok for comparison in compared):
                        break
                if all(comparison.ok for comparison in compared):
                    compared += self._compare_updates(set_variant, skipped)
            except torch.OutOfMemoryError:
                skipped.append("tensors that do not fit into memory twice")
                free_memory(torch)
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
            run = CallRerun(torch, call, training, skipped)
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
            if (
                training
                and all(comparison.ok for comparison in compared)
                and self._has_dropout(run, set_variant)
            ):
                compared += self._compare_draws(run, set_variant, words)
        return compared

    def _compare_exactly(
        self,
        run: CallRerun,
        base: Sampled,
        set_variant: SetVariant,
        precision: str | None,
        mode: str,
    ) -> list[QuantityComparison]:
        script_dtype = run.precision
        with self._off(self._torch, run.call.module):
            reference = run.reference()
            set_variant(True)
            fixed, _ = run.sampled()
            set_variant(False)
            unit = max(UNITS.get(precision or script_dtype, UNITS["bfloat16"]), UNITS["float32"])
            if precision is None and script_dtype in UNITS:
                unit = max(
                    unit, UNITS[script_dtype] if script_dtype != "float64" else UNITS["float64"]
                )
            truth = reference or base
            comparisons = list(numerics.compare(base, fixed, truth, unit=unit, mode=mode))
            if all(comparison.ok for comparison in comparisons):
                return comparisons
            # Does the program itself amplify rounding errors, as routing between experts does?
            perturbed = run.perturbed(unit)
        return list(numerics.compare(base, fixed, truth, unit=unit, perturbed=perturbed, mode=mode))

    def _compare_drawn(
        self,
        run: CallRerun,
        base: Sampled,
        set_variant: SetVariant,
        precision: str | None,
        mode: str,
    ) -> list[QuantityComparison]:
        """Compare values if both runs draw the same random numbers, else their means and spread."""
        with self._off(self._torch, run.call.module):
            set_variant(True)
            fixed, _ = run.sampled()
            set_variant(False)
        unit = max(UNITS.get(precision or run.precision, 0.0), UNITS["float32"])
        comparisons = list(numerics.compare(base, fixed, base, unit=unit, mode=mode))
        are_equal = all(
            comparison.ok
            for comparison in comparisons
            if comparison.what.removesuffix(mode) in base.outputs
        )
        if are_equal:
            return comparisons
        # Their gradients were not compared one by one either.
        return self._compare_draws(run, set_variant, mode, gradients=True)

    def _has_dropout(self, run: CallRerun, set_variant: SetVariant) -> bool:
        set_variant(False)
        return run.sampled(gradients=False)[1]

    def _compare_draws(
        self, run: CallRerun, set_variant: SetVariant, mode: str, *, gradients: bool = False
    ) -> list[QuantityComparison]:
        base: list[Sampled] = []
        fixed: list[Sampled] = []
        for drawn, with_change in ((base, False), (fixed, True)):
            set_variant(with_change)
            for at in range(_SEEDS):
                drawn.append(run.sampled(seed=SEED + at, gradients=gradients)[0])
        set_variant(False)
        comparisons = numerics.compare_draws(
            [run_values.outputs for run_values in base],
            [run_values.outputs for run_values in fixed],
            mode,
        )
        scale = numerics.compare_drawn_gradients(
            [run_values.gradients for run_values in base],
            [run_values.gradients for run_values in fixed],
        )
        return [*comparisons, *scale]

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
                    before = [sample(torch, p) for p in parameters]
                    try:
                        notify_hooks("optimizer_begins", optimizer)
                        optimizer.step()
                    except TypeError:
                        break  # it needs a closure
                    updates.append(
                        {
                            str(at): sample(torch, p) - was
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


@contextlib.contextmanager
def _unchanged(torch: Any, module: Any) -> Iterator[None]:
    yield


def _set_gradients(torch: Any, parameters: Sequence[Any]) -> None:
    generators: dict[Any, Any] = {}
    for parameter in parameters:
        device = parameter.device
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(SEED)
        gradient = torch.empty_like(parameter, memory_format=torch.preserve_format)
        parameter.grad = gradient.normal_(std=1e-2, generator=generators[device])
