"""The profiled steps as one trace file, and what only the running process knows about them."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from boundby.capture.host.line_sampler import LineSampler
from boundby.capture.marks import phase_mark
from boundby.capture.process.guard import Guard
from boundby.capture.process.stderr_mute import muted_stderr
from boundby.capture.torch.device import TorchDevice
from boundby.capture.torch.line_tracer import LineTracer
from boundby.capture.torch.modes import outside_modes
from boundby.capture.torch.profiler_cost import MeasuredCallCost, measured_call_cost, take_times
from boundby.runtime.patching import PatchSet

_LOG_LEVEL = "KINETO_LOG_LEVEL"
_RUNNING_ALREADY = (
    "a profiler was running already, so the steps could not be profiled: "
    "switch the script's own profiler off"
)
_ENDED_OURS = "the script started its own profiler, which stopped boundby's: switch it off"
# As many Python calls as can be read: one takes about 2 kB of memory, and 50 us of analysis.
_MOST_CALLS = 2_000_000


@contextlib.contextmanager
def _silenced(torch: Any) -> Iterator[None]:
    """Suppress the profiler's messages on stderr, and its warnings about cycles, of which there are
    none; its operators are hidden from the script's modes.

    Not with a filter: each change of the filters makes Python repeat the script's warnings that
    were shown already. The profiler reads the log level once per process.
    """
    modules = (torch.profiler.profiler, torch.autograd.profiler)
    known = [(module, module.warn) for module in modules if hasattr(module, "warn")]
    is_set = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, "99")
    for module, _ in known:
        module.warn = _say_nothing
    try:
        with outside_modes(torch):
            yield
    finally:
        for module, warn in known:
            module.warn = warn
        if not is_set:
            del os.environ[_LOG_LEVEL]


def _quiet_elsewhere() -> contextlib.AbstractContextManager[None]:
    """Suppress what Kineto says, whatever its log level, if another thread than the main one starts
    it."""
    is_main = threading.current_thread() is threading.main_thread()
    return contextlib.nullcontext() if is_main else muted_stderr()


def _say_nothing(*_: object, **__: object) -> None:
    return


class TorchProfiler:
    """torch's own profiler, unless the script is using it."""

    def __init__(
        self, torch: Any, device: TorchDevice, folder: Path, guard: Guard | None = None
    ) -> None:
        self.trace = folder / "trace.json"
        self.problem: str | None = None
        self.results: Any = None
        self.sampler = LineSampler()
        self.call_cost: MeasuredCallCost | None = None
        self._torch = torch
        self._device = device
        self._guard = guard or Guard()
        self._profiler: Any = None
        self.line_tracer = LineTracer(torch)
        self._is_starting = False
        self._has_theirs = False
        self._others = PatchSet()
        self._watch_for_others()

    @property
    def is_running(self) -> bool:
        return self._profiler is not None

    def start(self) -> bool:
        """Start; False, with a `problem`, if steps cannot be profiled."""
        profiler = self._torch.profiler
        if self._has_theirs or self._torch.autograd._profiler_enabled():
            self.problem = _RUNNING_ALREADY
            return False
        activities = [profiler.ProfilerActivity.CPU]
        if self._device.is_cuda:
            activities.append(profiler.ProfilerActivity.CUDA)
        # If it is imported while profiling, frames remain whose names are freed.
        with contextlib.suppress(ImportError):
            importlib.import_module("torch.profiler._cupti_monitor")
        self._device.sync()
        self._is_starting = True
        try:
            with _silenced(self._torch):
                started = profiler.profile(
                    activities=activities,
                    record_shapes=True,
                    profile_memory=True,
                    with_stack=True,
                    # Steps are marked in the trace only with a schedule.
                    schedule=lambda _: profiler.ProfilerAction.RECORD,
                )
                before = self._torch.empty(1)
                without = take_times()
                with _quiet_elsewhere():
                    started.start()
                self.call_cost = measured_call_cost(without, take_times())
            with muted_stderr():
                # Once per process, it warns about memory whose allocation it has not seen:
                # suppressed.
                del before
        except RuntimeError as error:
            self.problem = _failure(error)
            return False
        finally:
            self._is_starting = False
        self._profiler = started
        # Only now: the profiler would follow a thread that exists when it starts.
        self.sampler.start()
        self.line_tracer.start()
        return True

    def step(self) -> None:
        self.line_tracer.stop()
        if self._profiler is not None:
            with _silenced(self._torch):
                self._profiler.step()

    def mark(self, phase: str) -> None:
        """Write an empty range into the profile, named for the phase that begins here."""
        if self._profiler is not None:
            with self._torch._C._profiler._RecordFunctionFast(phase_mark(phase)):
                pass

    def is_full(self, late_ns: float, steps: int) -> bool:
        """Whether the profile is about to grow too large. All of the delay is attributed to Python
        calls; if much of it is of operators, there are many of these."""
        if self.call_cost is None or self.call_cost.builtin_ns <= 0:
            return False
        calls = late_ns / self.call_cost.builtin_ns
        return calls * (steps + 1) > _MOST_CALLS * steps

    def stop(self) -> None:
        """End profiling and write the trace, uncompressed: compression takes ten times longer."""
        self._others.undo()
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        self.sampler.stop()
        self.line_tracer.stop()
        try:
            # The last step ends here: waiting for the device is not part of it.
            with _silenced(self._torch):
                profiler.step()
                self._device.sync()
                profiler.stop()
            profiler.export_chrome_trace(str(self.trace))
            self.results = profiler.profiler.kineto_results
        except (OSError, RuntimeError) as error:
            self.problem = _failure(error)

    def _watch_for_others(self) -> None:
        """End boundby's profiler, keeping its steps, when the script starts its own.

        torch runs one at a time: a second one silently ends the first, and reading the events of
        the first then crashes the process. One that is prepared and warms up does not count as
        running in torch.
        """
        module = self._torch.autograd.profiler
        self._others.swap(module, "_prepare_profiler", self._preparing)
        self._others.swap(module, "_disable_profiler", self._disabling)

    def _preparing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def prepare(*args: Any, **kwargs: Any) -> Any:
            if not self._is_starting:
                if self._profiler is not None:
                    self._guard.do(self._end_for_another)
                self._has_theirs = True
            return original(*args, **kwargs)

        return prepare

    def _disabling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def disable(*args: Any, **kwargs: Any) -> Any:
            self._has_theirs = False
            return original(*args, **kwargs)

        return disable

    def _end_for_another(self) -> None:
        self.stop()
        self.problem = _ENDED_OURS


def _failure(error: OSError | RuntimeError) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return f"the profiler failed: {lines[0]}"
