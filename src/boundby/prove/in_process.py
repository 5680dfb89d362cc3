"""Trials of a function that no other process can import: in this one, in turn.

Weights, optimizers and generators are put back before each trial, so that all start alike. What
is made before the function is called, optimizers and loaders among it, cannot be changed here.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from boundby.capture.process.plan import Plan
from boundby.capture.process.step_hooks import StepHook, accompanied_by
from boundby.capture.process.windows import Window
from boundby.capture.torch.hooks import Hooks
from boundby.capture.torch.recorder import Recorder
from boundby.fixes.log import touched
from boundby.model import Note
from boundby.prove.numerics_recorder import EXACT_STEPS, SEEDED_STEPS, NumericsRecorder
from boundby.prove.process import Wanted
from boundby.prove.trial_result import Notes, TrialResult
from boundby.prove.worker import compute_in_float32, peak_bytes, treatment

CAVEAT = Note(
    code="same-process",
    text="no other process can import the function, so every fix was measured in this one: put "
    "the function in a module to measure in fresh processes, and to try fixes that apply at import",
)


class SameProcess:
    """Observes a function, as often as is wanted, from the same state each time."""

    def __init__(self, call: Callable[[], Any], steps: int) -> None:
        import torch

        self._torch: Any = torch
        self._call = call
        self._steps = steps
        self._state = _State(torch)

    def observe(self, wanted: Wanted) -> TrialResult:
        began = time.monotonic()
        self._state.restore()
        touched.clear()
        problem = None
        with contextlib.ExitStack() as stack:
            for key in wanted.arm:
                apply = treatment(key).apply
                if apply is not None:
                    stack.enter_context(apply())
            if wanted.reference:
                stack.callback(compute_in_float32(self._torch))
            stack.enter_context(accompanied_by(self._state))
            notebook = NumericsRecorder(
                self._torch,
                seed=wanted.seed,
                has_dropout=wanted.has_dropout,
                nudged=wanted.nudged,
                exact=wanted.exact,
            )
            stack.callback(notebook.close)
            stack.enter_context(accompanied_by(notebook))
            try:
                samples = self._timed(wanted)
            except Exception as error:  # noqa: BLE001 - a fix may break the function in any way
                lines = str(error).strip().splitlines()
                problem, samples = f"{type(error).__name__}: {lines[0] if lines else ''}", []
        if wanted.arm:
            # What was compiled for this trial is not to serve another.
            self._torch.compiler.reset()
        return TrialResult(
            arm=list(wanted.arm),
            reference=wanted.reference,
            seed=wanted.seed,
            seconds=time.monotonic() - began,
            kind="step",
            samples_ns=samples,
            peak_bytes=peak_bytes(),
            notes=msgspec.convert(notebook.written(), Notes),
            touched=dict(touched),
            problem=problem,
        )

    def _timed(self, wanted: Wanted) -> list[float]:
        compared = EXACT_STEPS + SEEDED_STEPS
        plan = Plan(
            warmup=compared if wanted.reference else None,
            clean=1 if wanted.reference else self._steps,
            issue=0,
            profiled=0,
            least_warmup=compared + 3,
        )
        hooks = Hooks()
        with tempfile.TemporaryDirectory(prefix="boundby-") as folder:
            recorder = Recorder(
                self._torch,
                plan=plan,
                step_by="mark",
                folder=Path(folder),
                on_done=lambda: None,
                on_first_step=hooks.narrow,
            )
            hooks.install(self._torch)
            hooks.watcher = recorder
            try:
                while recorder.windows.window is not Window.DONE:
                    self._call()
                    recorder.mark()
                capture = recorder.capture()
            finally:
                hooks.remove()
        return capture.clean.get(capture.main_kind or "", [])


class _State(StepHook):
    """Modules and optimizers as they were before they were first used here."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._modules: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._optimizers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._generators = self._states()

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if hasattr(called, "state_dict") and called not in self._modules:
            self._modules[called] = copy.deepcopy(called.state_dict())

    def optimizer_begins(self, optimizer: Any) -> None:
        if optimizer not in self._optimizers:
            self._optimizers[optimizer] = copy.deepcopy(optimizer.state_dict())

    def restore(self) -> None:
        for module, state in self._modules.items():
            module.load_state_dict(state)
            module.zero_grad(set_to_none=True)
        for optimizer, state in self._optimizers.items():
            optimizer.load_state_dict(copy.deepcopy(state))
        self._torch.set_rng_state(self._generators[0])
        if self._generators[1:]:
            self._torch.cuda.set_rng_state_all(self._generators[1:])

    def _states(self) -> list[Any]:
        torch = self._torch
        states = [torch.get_rng_state()]
        return states + (torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])
