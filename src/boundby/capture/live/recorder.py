"""The watcher that turns a running script into a capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boundby.capture.live.steps import StepBy, StepFinder, first_shape
from boundby.capture.live.torch_device import TorchDevice, TorchProfiler
from boundby.capture.live.windows import Plan, Window, Windows


class EnoughSteps(SystemExit):
    """Raised inside the script, at a step's end, when all windows are filled."""

    def __init__(self) -> None:
        super().__init__(0)


@dataclass(slots=True, kw_only=True)
class Capture:
    """What was seen of one script, whatever became of it."""

    step_by: StepBy | None
    main_kind: str | None
    clean: dict[str, list[float]] = field(default_factory=dict)
    warmup: dict[str, list[float]] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    trace: Path | None = None
    profiled: list[str] = field(default_factory=list)
    results: Any = None
    cuda_index: int | None = None
    seen: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Recorder:
    """Implements the hooks' `Watcher`; one per run."""

    def __init__(
        self,
        torch: Any,
        *,
        plan: Plan,
        step_by: StepBy,
        folder: Path,
        on_done: Callable[[], None],
    ) -> None:
        self._torch = torch
        self._device = TorchDevice(torch)
        self._profiler = TorchProfiler(torch, self._device, folder)
        self.windows = Windows(plan, self._device, self._profiler, on_done)
        self.finder = StepFinder(step_by, self.windows.step_ended)

    def call_begins(self, called: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.windows.window is Window.DONE:
            return
        training = self._torch.is_grad_enabled() and bool(getattr(called, "training", True))
        # A module is its own first argument.
        given = args[1:] if args and args[0] is called else args
        self.finder.called(id(called), training, first_shape(given, kwargs))

    def call_ends(self) -> None:
        return

    def backward_begins(self) -> None:
        self.windows.phase_changed("backward")

    def backward_ends(self) -> None:
        self.windows.phase_changed("other")

    def optimizer_made(self, optimizer: object) -> None:
        self.finder.optimizer_made()

    def optimizer_begins(self, optimizer: object) -> None:
        self.windows.phase_changed("optimizer")

    def optimizer_ends(self, optimizer: object) -> None:
        self.windows.phase_changed("other")
        self.finder.optimizer_stepped(id(optimizer))

    def mark(self) -> None:
        self.finder.mark()

    def capture(self) -> Capture:
        """Everything seen so far; called once the script has ended, or is made to."""
        windows = self.windows
        stopped_in = windows.window
        windows.finish()
        taken = Capture(
            step_by=self.finder.found_by,
            main_kind=windows.main_kind,
            profiled=windows.profiled,
            seen=dict(self.finder.seen),
            settings=self._settings(),
        )
        for sample in windows.warmup:
            taken.warmup.setdefault(sample.kind, []).append(sample.ns)
        for sample in windows.clean:
            taken.clean.setdefault(sample.kind, []).append(sample.ns)
        taken.phases = _median_phases(windows.issue)
        if self._device.is_cuda:
            taken.cuda_index = self._torch.cuda.current_device()
        if self._profiler.trace.exists():
            taken.trace = self._profiler.trace
            taken.results = self._profiler.results
        taken.warnings += _what_is_missing(stopped_in, taken, self._profiler.problem)
        return taken

    def _settings(self) -> dict[str, Any]:
        torch = self._torch
        return {
            "tf32": bool(torch.backends.cuda.matmul.allow_tf32),
            "threads": int(torch.get_num_threads()),
            "torch": str(torch.__version__),
        }


def _median_phases(issue: list[dict[str, float]]) -> dict[str, float]:
    import statistics

    names = {name: None for step in issue for name in step}
    return {name: statistics.median(step.get(name, 0.0) for step in issue) for name in names}


def _what_is_missing(window: Window, taken: Capture, problem: str | None) -> list[str]:
    """One line when the script ended before every window was filled."""
    if problem:
        return [problem]
    steps = sum(map(len, taken.warmup.values())) + sum(map(len, taken.clean.values()))
    if window is Window.DONE or not steps:
        return []
    return [
        f"the script ended during its {window.value}, after {steps} steps: "
        "fewer --warmup and --steps, or more steps in the script, would complete the picture"
    ]
