"""The device's clock and the profiler, as the windows need them; torch is the script's own."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any


class TorchDevice:
    """CUDA events where the script uses CUDA, the host's clock where it does not."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    @property
    def is_cuda(self) -> bool:
        return bool(self._torch.cuda.is_available() and self._torch.cuda.is_initialized())

    def mark(self) -> Any:
        if not self.is_cuda:
            return time.perf_counter_ns()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, marks: list[Any]) -> list[float]:
        times = []
        for earlier, later in itertools.pairwise(marks):
            if isinstance(earlier, int):
                times.append(float(later - earlier))
            else:
                times.append(float(earlier.elapsed_time(later)) * 1e6)
        return times

    def sync(self) -> None:
        if self.is_cuda:
            self._torch.cuda.synchronize()


class TorchProfiler:
    """The profiled steps as one trace file, and what only the running process knows of them."""

    def __init__(self, torch: Any, device: TorchDevice, folder: Path) -> None:
        self.trace = folder / "trace.json"
        self.problem: str | None = None
        self.results: Any = None
        self._torch = torch
        self._device = device
        self._profiler: Any = None

    def start(self) -> None:
        profiler = self._torch.profiler
        if self._torch.autograd._profiler_enabled():
            self.problem = (
                "a profiler was running already, so the steps could not be profiled: "
                "switch the script's own profiler off"
            )
            return
        activities = [profiler.ProfilerActivity.CPU]
        if self._device.is_cuda:
            activities.append(profiler.ProfilerActivity.CUDA)
        self._device.sync()
        self._profiler = profiler.profile(
            activities=activities,
            record_shapes=True,
            with_stack=True,
            # Only with a schedule are steps marked in the trace.
            schedule=lambda _: profiler.ProfilerAction.RECORD,
        )
        self._profiler.start()

    def step(self) -> None:
        if self._profiler is not None:
            self._profiler.step()

    def stop(self) -> None:
        """End profiling and write the trace, plain: compressing takes ten times longer."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        self._device.sync()
        if not self._torch.autograd._profiler_enabled():
            self.problem = (
                "the script started a profiler of its own, which ended ours: switch it off"
            )
            return
        try:
            profiler.stop()
            profiler.export_chrome_trace(str(self.trace))
            self.results = profiler.profiler.kineto_results
        except RuntimeError as error:
            self.problem = f"the profiler failed: {str(error).splitlines()[0]}"
