"""Diagnosis from Python: of a callable, or of the steps of the caller's own loop."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from boundby import diagnosis as conductor
from boundby import hardware as roofs
from boundby.capture.host.random_state import random_state_kept
from boundby.capture.jax.hooks import JaxHooks
from boundby.capture.jax.recorder import JaxRecorder
from boundby.capture.live_run import LiveCapture, observe, uses_jax
from boundby.capture.process.guard import Failure, Guard, failure_of, stopped_after
from boundby.capture.process.plan import Plan, plan_of
from boundby.capture.process.windows import Window
from boundby.capture.torch.hooks import Hooks
from boundby.capture.torch.recorder import Recorder
from boundby.diagnosis import Timer
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import Machine, Note
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import CANNOT_MEASURE, BoundbyError
from boundby.model.observation import Observation
from boundby.model.progress import Progress, show_progress

# A quick measurement takes some seconds; a rank that waits longer for another's measures itself.
_PATIENCE_S = 60.0


class Watch:
    """An observed loop: call `step()` at the end of each step; `diagnosis` is available after the
    loop."""

    def __init__(
        self,
        recorder: Recorder | JaxRecorder,
        machine: Machine | None,
        guard: Guard,
        folder: tempfile.TemporaryDirectory[str],
    ) -> None:
        self._recorder = recorder
        self._machine = machine
        self._guard = guard
        # Contains the trace, which a later diagnosis may need.
        self._folder = folder
        self._capture: LiveCapture | None = None
        self._diagnosis: Diagnosis | None = None
        self._problem: BoundbyError | None = None
        self._failure: Failure | None = None

    def step(self, result: object = None) -> None:
        """Mark the end of a step of the loop.

        `result`: what the step computed, so that its end on the device is known even if none of its
        functions can be watched.
        """
        self._guard.do(self._end_step, result)

    def _end_step(self, result: object) -> None:
        if isinstance(self._recorder, JaxRecorder):
            self._recorder.computed(result)
        self._recorder.mark()

    @property
    def done(self) -> bool:
        """Whether enough steps were measured: further ones are ignored."""
        return self._recorder.windows.window is Window.DONE or self._failure is not None

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis of all steps, or of those before an exception; an error with the reason if
        there is none."""
        if self._diagnosis is None and self._problem is None:
            if self._capture is None:
                raise BoundbyError("the diagnosis is made when the `with` block ends")
            try:
                with random_state_kept():
                    self._diagnosis = self._diagnose(self._capture)
            except BoundbyError as error:
                self._problem = error
            self._folder.cleanup()
        if self._diagnosis is None:
            assert self._problem is not None
            raise self._problem
        return self._diagnosis

    def end(self) -> None:
        """The loop has ended or failed: take what was captured."""
        self._capture = self._recorder.capture()

    def fail(self, error: Exception) -> None:
        """Code of boundby has raised in the loop: stop watching, let the loop continue."""
        errors = [error, *self._recorder.give_up(count_on=False)]
        self._failure = failure_of(stopped_after(self._recorder.windows.steps), errors)
        _warn_of(self._failure)

    def _diagnose(self, capture: LiveCapture) -> Diagnosis:
        if self._failure is not None:
            capture.notes.append(Note(code="observer-failed", text=self._failure.line))
            if capture.main_kind is None:
                raise BoundbyError(self._failure.line, exit_code=CANNOT_MEASURE)
        if capture.failure is not None:
            _warn_of(capture.failure)
        if capture.main_kind is None:
            raise BoundbyError("no step was seen: call step() at the end of each step of the loop")
        observation = observe(capture)
        machine = self._machine
        if machine is None:
            with show_progress("measuring") as progress:
                machine = machine_of(observation, progress=progress, notice=_warn)
        with (
            show_progress("timing") as progress,
            timer_of(observation, machine, progress=progress) as timer,
        ):
            return conductor.diagnose(observation, machine, timer=timer)

    def __str__(self) -> str:
        return str(self._diagnosis) if self._diagnosis else "a loop under observation"


@contextlib.contextmanager
def watch(
    *,
    warmup: int | None = None,
    steps: int | None = None,
    profiled: int = 3,
    machine: Machine | None = None,
) -> Iterator[Watch]:
    """Watch your own loop. About thirty steps are enough; fifty on a busy machine.

    `warmup`, `steps` and `profiled` are the numbers of steps that are not measured, measured, and
    profiled; by default they are determined from the steps themselves.

    with boundby.watch() as w:
        for batch in loader:
            train(batch)
            w.step()
    print(w.diagnosis)
    """
    with _watching(plan_of(warmup=warmup, steps=steps, profiled=profiled), machine) as watching:
        yield watching
    try:
        watching.diagnosis  # noqa: B018 - made here, where a wait is expected
    except BoundbyError as error:
        # The loop itself is fine: do not lose its results because the diagnosis failed.
        _warn(str(error))


def _watching(
    plan: Plan, machine: Machine | None, values: Sequence[object] = ()
) -> contextlib.AbstractContextManager[Watch]:
    """Watch steps of the framework that `values`, a function and its arguments, belong to."""
    if uses_jax(values):
        return _watching_jax(plan, machine)
    return _watching_torch(plan, machine)


@contextlib.contextmanager
def _ending(watching: Watch, guard: Guard, hooks: Hooks | JaxHooks) -> Iterator[None]:
    """Take the capture at the end of the loop, and remove the hooks."""
    try:
        yield
    except BaseException:
        guard.do(watching.end)
        raise
    else:
        watching.end()
    finally:
        hooks.watcher = None
        hooks.remove()


@contextlib.contextmanager
def _watching_jax(plan: Plan, machine: Machine | None) -> Iterator[Watch]:
    import jax

    def fail(error: Exception) -> None:
        hooks.watcher = None
        watching.fail(error)

    guard = Guard(fail)
    hooks = JaxHooks(guard)
    folder = tempfile.TemporaryDirectory(prefix="boundby-", ignore_cleanup_errors=True)
    recorder = JaxRecorder(
        jax,
        plan=plan,
        by_marks=True,
        folder=Path(folder.name),
        on_done=lambda: None,
        hooks=hooks,
        spelling="arguments",
        guard=guard,
    )
    watching = Watch(recorder, machine, guard, folder)
    with _ending(watching, guard, hooks):
        hooks.install(jax)
        hooks.watcher = recorder
        yield watching


@contextlib.contextmanager
def _watching_torch(plan: Plan, machine: Machine | None) -> Iterator[Watch]:
    torch = _torch()

    def fail(error: Exception) -> None:
        hooks.watcher = hooks.graphs = None
        watching.fail(error)

    guard = Guard(fail)
    hooks = Hooks(guard)
    folder = tempfile.TemporaryDirectory(prefix="boundby-", ignore_cleanup_errors=True)
    recorder = Recorder(
        torch,
        plan=plan,
        step_by="mark",
        folder=Path(folder.name),
        on_done=lambda: None,
        on_first_step=hooks.narrow,
        spelling="arguments",
        guard=guard,
    )
    watching = Watch(recorder, machine, guard, folder)
    with _ending(watching, guard, hooks):
        hooks.install(torch)
        hooks.watcher = recorder
        hooks.graphs = recorder.graphs
        yield watching


def diagnose(
    function: Callable[..., Any],
    *args: Any,
    warmup: int | None = None,
    steps: int | None = None,
    profiled: int = 3,
    machine: Machine | None = None,
    **kwargs: Any,
) -> Diagnosis:
    """Call a function that is one step as often as needed, and diagnose that step.

    Arguments that a JAX function donates are consumed by the call; the next call gets its results.
    """
    plan = plan_of(warmup=warmup, steps=steps, profiled=profiled, at_leisure=True)
    donates = uses_jax((function, *args, *kwargs.values()))  # until the first call tells
    with _watching(plan, machine, (function, *args, *kwargs.values())) as watching:
        while not watching.done:
            result = function(*args, **kwargs)
            watching.step(result)
            if donates and not watching.done:
                before = args, kwargs
                args, kwargs = _after_donation(args, kwargs, result)
                donates = args is not before[0] or kwargs is not before[1]
    return watching.diagnosis


def _after_donation(
    args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import jax

    from boundby.capture.jax.donated import next_arguments

    return next_arguments(jax, args, kwargs, result)


def machine(
    device: str | None = None,
    *,
    remeasure: bool = False,
    quick: bool = False,
    threads: int | None = None,
    notice: Callable[[str], None] | None = None,
) -> Machine:
    """The roofs of a device: the saved ones, or measured now, which takes seconds to minutes.

    `device` as torch names it; default: the accelerator, otherwise the CPU. `quick` measures in
    under ten seconds, with a wider error. `notice` gets one line if saved roofs exist and cannot be
    used; default: a warning.
    """
    with random_state_kept(), show_progress("measuring") as progress:
        return roofs.obtain(
            device,
            remeasure=remeasure,
            quick=quick,
            threads=threads,
            progress=progress,
            notice=notice or _warn,
        )


def machine_of(
    observation: Observation,
    *,
    measured_elsewhere: bool = False,
    progress: Progress = lambda *_: None,
    notice: Callable[[str], None] = lambda *_: None,
) -> Machine:
    """The roofs of the device that the step ran on: the saved ones, or measured quickly now.

    `measured_elsewhere`: another rank on this machine is measuring; wait for it to save.
    """
    device = _device_of(observation)
    identity = roofs.identify(device) if "torch" in sys.modules else None
    if measured_elsewhere and identity is not None:
        roofs.await_saved(identity, seconds=_PATIENCE_S)
    return roofs.obtain(
        device,
        quick=True,
        threads=observation.settings.threads,
        identity=identity,
        progress=progress,
        notice=notice,
    )


@contextlib.contextmanager
def timer_of(
    observation: Observation,
    machine: Machine,
    *,
    progress: Progress = lambda *_: None,
) -> Iterator[Timer | None]:
    """Benchmarks single operators on the device that the step ran on; None if it is not here.

    Also None with roofs of another machine: its times and this machine's must not be mixed.
    """
    device = _device_of(observation)
    if "torch" not in sys.modules or roofs.identify(device).name != machine.device:
        yield None
        return
    threads = observation.settings.threads
    with roofs.OpBenchmarkRunner(device, threads=threads, progress=progress) as operators:

        def timer(op_benchmarks: Sequence[OpBenchmark]) -> dict[OpBenchmark, float]:
            try:
                return operators(op_benchmarks)
            except BoundbyError:
                # The prediction then follows from the roofs: wider, not missing.
                return {}

        yield timer


def _device_of(observation: Observation) -> str:
    """The device as torch names it."""
    index = observation.device.index
    return "cpu" if index is None else f"cuda:{index}"


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=3)


def _warn_of(failure: Failure) -> None:
    path = failure.keep(None)
    _warn(f"{failure.line} (in full: {path})" if path else f"{failure.line}\n{failure.text}")


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise BoundbyError(
            "watching a step needs PyTorch: pip install torch", exit_code=CANNOT_MEASURE
        ) from None
    return torch
