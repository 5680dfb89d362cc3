"""The profiled steps as one trace file, and what only the running process knows of them."""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boundby.capture.live.guard import Guard
from boundby.capture.live.operators import show_operators
from boundby.capture.live.sampler import LineSampler
from boundby.capture.live.silence import unheard
from boundby.capture.live.swaps import Swaps
from boundby.capture.live.toll import Taken, take_times, toll_of
from boundby.capture.live.torch_device import TorchDevice

_LOG_LEVEL = "KINETO_LOG_LEVEL"
_RUNNING_ALREADY = (
    "a profiler was running already, so the steps could not be profiled: "
    "switch the script's own profiler off"
)
_ENDED_OURS = "the script started a profiler of its own, which ended ours: switch it off"


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keep the profiler's notes on itself off stderr, and its warnings of cycles: there are none.

    It asks for the level once a process.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if _LOG_LEVEL in os.environ:
            yield
            return
        os.environ[_LOG_LEVEL] = "99"
        try:
            yield
        finally:
            del os.environ[_LOG_LEVEL]


class TorchProfiler:
    """torch's own profiler, unless the script is using it."""

    def __init__(
        self, torch: Any, device: TorchDevice, folder: Path, guard: Guard | None = None
    ) -> None:
        self.trace = folder / "trace.json"
        self.problem: str | None = None
        self.results: Any = None
        self.sampler = LineSampler()
        self.toll: Taken | None = None
        self._torch = torch
        self._device = device
        self._guard = guard or Guard()
        self._profiler: Any = None
        self._shown = Swaps()

    @property
    def is_running(self) -> bool:
        return self._profiler is not None

    def start(self) -> bool:
        """False, with a `problem`, where steps cannot be profiled."""
        profiler = self._torch.profiler
        if self._torch.autograd._profiler_enabled():
            self.problem = _RUNNING_ALREADY
            return False
        activities = [profiler.ProfilerActivity.CPU]
        if self._device.is_cuda:
            activities.append(profiler.ProfilerActivity.CUDA)
        # Imported while profiling, it would leave frames behind whose names are freed.
        with contextlib.suppress(ImportError):
            importlib.import_module("torch.profiler._cupti_monitor")
        self._device.sync()
        try:
            with _silenced():
                started = profiler.profile(
                    activities=activities,
                    record_shapes=True,
                    profile_memory=True,
                    with_stack=True,
                    # Only with a schedule are steps marked in the trace.
                    schedule=lambda _: profiler.ProfilerAction.RECORD,
                )
                before = self._torch.empty(1)
                without = take_times()
                started.start()
                self.toll = toll_of(without, take_times())
            with unheard():
                # Once a process, it remarks on memory it has not seen taken: here, to nobody.
                del before
        except RuntimeError as error:
            self.problem = _failure(error)
            return False
        self._profiler = started
        self._shown = show_operators(self._torch)
        self._give_way()
        # Only now: the profiler would follow a thread that is there when it starts.
        self.sampler.start()
        return True

    def step(self) -> None:
        if self._profiler is not None:
            with _silenced():
                self._profiler.step()

    def stop(self) -> None:
        """End profiling and write the trace, plain: compressing takes ten times longer."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        self.sampler.stop()
        self._shown.undo()
        self._torch.autograd.profiler._prepare_profiler = self._prepare
        try:
            # The last step ends here: waiting for the device is no part of it.
            with _silenced():
                profiler.step()
                self._device.sync()
                profiler.stop()
            profiler.export_chrome_trace(str(self.trace))
            self.results = profiler.profiler.kineto_results
        except (OSError, RuntimeError) as error:
            self.problem = _failure(error)

    def _give_way(self) -> None:
        """End ours, with the steps it has, when the script starts a profiler of its own.

        torch runs one at a time: a second ends the first without a word, and whoever then asks
        the first for its events crashes the process.
        """
        module = self._torch.autograd.profiler
        self._prepare = module._prepare_profiler

        def prepare(*args: Any, **kwargs: Any) -> Any:
            if self._profiler is not None:
                self._guard.do(self._end_for_another)
            return self._prepare(*args, **kwargs)

        module._prepare_profiler = prepare

    def _end_for_another(self) -> None:
        self.stop()
        self.problem = _ENDED_OURS


def _failure(error: OSError | RuntimeError) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return f"the profiler failed: {lines[0]}"
