"""The profiled steps as one XLA profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boundby.capture.jax import compat
from boundby.capture.jax.device import JaxDevice
from boundby.capture.jax.line_recorder import LineRecorder
from boundby.capture.marks import OWN_WAIT, STEP_MARK

_RUNNING_ALREADY = (
    "a profiler was running already, so the steps could not be profiled: "
    "switch the script's own profiler off"
)


class JaxProfiler:
    """JAX's own profiler, unless the script is using it. Each step is a marked range."""

    def __init__(self, jax: Any, device: JaxDevice, folder: Path) -> None:
        self.problem: str | None = None
        self.trace: Path | None = None
        self._jax = jax
        self._device = device
        self._folder = folder / "xla"
        self._step: Any = None
        self._steps = 0
        self.is_running = False
        self.lines = LineRecorder()

    def start(self) -> bool:
        self._device.sync()
        try:
            compat.start_profiler(self._jax, self._folder)
        except (RuntimeError, ValueError) as error:
            already = "only one profile" in str(error).lower()
            self.problem = _RUNNING_ALREADY if already else f"the profiler failed: {error}"
            return False
        self.is_running = True
        self._begin()
        self.lines.start()
        return True

    def step(self) -> None:
        if self.is_running:
            self._end()
            self._begin()

    def mark(self, phase: str) -> None:
        """Do nothing: phases inside a compiled function are found by its scopes."""

    def is_full(self, late_ns: float, steps: int) -> bool:
        return False

    def stop(self) -> None:
        if not self.is_running:
            return
        self.is_running = False
        self._end()
        try:
            compat.stop_profiler(self._jax)
        except (RuntimeError, OSError) as error:
            self.problem = f"the profiler failed: {error}"
            return
        written = sorted(self._folder.rglob("*.xplane.pb"))
        if written:
            self.trace = written[-1]
        else:
            self.problem = "the profiler wrote no profile"

    def _begin(self) -> None:
        self._step = self._jax.profiler.StepTraceAnnotation(STEP_MARK, step_num=self._steps)
        self._step.__enter__()
        self._steps += 1

    def _end(self) -> None:
        self.lines.stop()
        # Steps do not overlap in the profile: work still queued would count to the next one. The
        # wait is marked, because the script itself does not wait here.
        with self._jax.profiler.TraceAnnotation(OWN_WAIT):
            self._device.sync()
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
