"""Turns a running script into a capture."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boundby.capture.host.counters import HostCounterSampler, thread_time
from boundby.capture.host.page_faults import fault_ns, faults
from boundby.capture.host.speed import HostSpeedSampler
from boundby.capture.process.guard import Guard, failure_of
from boundby.capture.process.plan import MOST_AWAITED_NS, How, Plan, Spelling, shortfall
from boundby.capture.process.run_clock import RunClock
from boundby.capture.process.run_hooks import calling_line
from boundby.capture.process.step_finder import StepBy, StepFinder
from boundby.capture.process.windows import Window, Windows
from boundby.capture.torch.capture import Capture
from boundby.capture.torch.compiled_code import compiled_graphs
from boundby.capture.torch.device import TorchDevice
from boundby.capture.torch.evidence.collector import EvidenceCollector
from boundby.capture.torch.graph_recorder import GraphRecorder
from boundby.capture.torch.modes import outside_modes
from boundby.capture.torch.object_ids import ObjectIds
from boundby.capture.torch.owners import Owners
from boundby.capture.torch.phases import usual_phases
from boundby.capture.torch.profiler import TorchProfiler
from boundby.capture.torch.provenance import kernel_lines
from boundby.capture.torch.shapes import first_shape
from boundby.capture.torch.training_stack import TrainingStack
from boundby.model.note import Note
from boundby.runtime.float32_settings import float32_allowed
from boundby.runtime.step_hooks import active_hooks

if TYPE_CHECKING:
    pass

_PROFILED_ITSELF = Note(
    code="script-profiler",
    text="the script's own profiler was running in clean steps and made them longer: turn it off",
)
_OLD_LINES = Note(
    code="stale-compiled-lines",
    text="compiled code came from a cache that an older version of the script filled, and some of "
    "its lines no longer exist: that work is shown at the line that calls the compiled code "
    "(set TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 to compile again)",
)
_UNCLEAR = Note(
    code="too-few-steps",
    text="an optimizer was made but never stepped: whether training would follow these calls was "
    "unknown until the script ended, so they were not profiled: --step-by forward does",
)
_NO_GRAPH_RECORDING = "recording the operators of captured CUDA graphs failed"
_NO_EVIDENCE = "checking values and gradients failed"
_ANOTHER_KIND = "no {} step ran while steps were profiled: another kind of step is diagnosed"
# A script that trains by replaying graphs steps its optimizer before it records them.
_PATIENCE_WITH_GRAPHS = 10


class Recorder:
    """Implements the hooks' `HookListener`; one per run."""

    def __init__(
        self,
        torch: Any,
        *,
        plan: Plan,
        step_by: StepBy,
        folder: Path,
        on_done: Callable[[], None],
        on_first_step: Callable[[], None] = lambda: None,
        spelling: Spelling = "options",
        guard: Guard | None = None,
        run: RunClock | None = None,
        on_window: Callable[[Window, int, str | None], None] = lambda *_: None,
    ) -> None:
        """`run`: also divides the whole run into parts; it continues after the last window.

        `on_window` gets each window that opens, for progress messages.
        """
        self._torch = torch
        self._follows_run = run is not None
        self._run = run or RunClock()
        # Called at step ends once the windows are done.
        self.after_done: Callable[[], None] = lambda: None
        self._spelling = spelling
        self._plan = plan
        self._device = TorchDevice(torch)
        self._profiler = TorchProfiler(torch, self._device, folder, guard)
        # Without a profile, recordings of captured graphs are not needed.
        self.graphs = GraphRecorder(torch, folder) if plan.profiled else None
        self._bystander = HostCounterSampler()
        self._evidence = EvidenceCollector(torch)
        self._host_speeds = {window: HostSpeedSampler() for window in Window}
        self.windows = Windows(
            plan,
            self._device,
            self._profiler,
            on_done,
            observer=self._bystander,
            look=lambda window: self._host_speeds[window].sample(),
            evidence=self._evidence,
            awaits_ns=self._awaits_ns,
            in_row=lambda: self.finder.in_row,
            on_window=on_window,
        )
        self.finder = StepFinder(
            step_by, self._step_ended, self.windows.start_over, may_be_unclear=not plan.in_step
        )
        self._on_first_step: Callable[[], None] | None = on_first_step
        self._keys = ObjectIds()
        self._owners = Owners(torch.nn.Module)
        self._stack = TrainingStack()
        self._is_profiling: Callable[[], bool] = torch.autograd._profiler_enabled
        # Even a shape is asked of a `TorchFunctionMode` of the script.
        self._unseen_by_functions = torch._C.DisableTorchFunction
        self._disturbed = False
        self._whole_profiled = 0
        self._coreless: list[float] = []
        self._fresh_pages: list[int] = []
        self._before_step = (0.0, 0)
        self._settings: dict[str, Any] = {}
        self._in_optimizer = False
        self._in_backward = False
        self._stepped_in_backward: list[int] = []

    def _awaits_ns(self) -> float:
        if self.finder.is_unclear:
            return math.inf
        is_known = self.finder.awaits_rollouts or self.finder.awaits_training
        return MOST_AWAITED_NS if is_known else 0.0

    def _step_ended(self, kind: str) -> None:
        window = self.windows.window
        # Once the profiler has run, the process stays slower.
        distorted = window not in (Window.WARMUP, Window.CLEAN)
        self._run.step_ended(kind, mode=self.finder.mode_of(kind), distorted=distorted)
        if window is Window.DONE:
            self.after_done()
            return
        began = time.perf_counter_ns()
        try:
            self._look_at_step(kind)
        finally:
            self._run.own(time.perf_counter_ns() - began)

    def _look_at_step(self, kind: str) -> None:
        if not self.finder.is_unclear:
            if self._on_first_step is not None:
                self._on_first_step()
                self._on_first_step = None
            for hook in tuple(active_hooks):  # a copy, because a hook may replace others
                hook.step_ended(kind)
        if self.windows.window is Window.CLEAN and self._is_profiling():
            self._disturbed = True
        if self.windows.window is Window.PROFILED:
            cpu_wait, pages = self._before_step
            self._coreless.append(_coreless_so_far() - cpu_wait)
            self._fresh_pages.append(faults() - pages)
            # A step that the script's own profiler has cut short does not count.
            self._whole_profiled += self._profiler.is_running
            # Here, because at the script's end the steps' thread may have other settings.
            with outside_modes(self._torch):
                self._settings = self._settings or self._read_settings()
        self.windows.step_ended(kind)
        if self.windows.window is Window.PROFILED:
            self._before_step = _coreless_so_far(), faults()
        if self.graphs is not None:
            self.graphs.step_ended(profiles=self.windows.window is Window.PROFILED)

    def call_begins(self, called: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        torch = self._torch
        in_training = bool(getattr(called, "training", True))
        records = torch.is_grad_enabled()
        training = records and in_training
        where = None if training or self._run.in_evaluation else calling_line()
        # A module is its own first argument.
        given = args[1:] if args and args[0] is called else args
        with self._unseen_by_functions():
            shape = first_shape(given, kwargs)
        self._run.model_called(
            id(called), training, in_training=in_training, records=records, where=where, shape=shape
        )
        if self._is_blind():
            return
        key = self._keys.of(called)
        self._forget_deleted()
        if isinstance(called, torch.cuda.CUDAGraph):
            self.finder.called(key, True, shape, patience=_PATIENCE_WITH_GRAPHS)
        else:
            waits = bool(getattr(called, "training", True))
            self.finder.called(
                key,
                training,
                shape,
                waits=waits,
                owned=self._owners.own(called),
                gradients=torch.is_grad_enabled(),
            )
        self.windows.phase_changed("forward")

    def backward_begins(self) -> None:
        self._in_backward = True
        self._run.backward_begins()
        if not self._is_blind():
            self.windows.phase_changed("backward")

    def backward_ends(self) -> None:
        self._in_backward = False
        if self._is_blind():
            return
        self.windows.phase_changed("optimizer" if self._in_optimizer else "other")
        stepped, self._stepped_in_backward = self._stepped_in_backward, []
        for key in stepped:
            self.finder.optimizer_stepped(key)
        self.finder.backward_ended()

    def optimizer_made(self, optimizer: object) -> None:
        self._owners.made(optimizer)
        self._stack.optimizer_made()
        self.finder.optimizer_made(self._keys.of(optimizer))

    def optimizer_begins(self, optimizer: object) -> None:
        self._in_optimizer = True
        self._stack.optimizer_steps()
        if not self._is_blind() and not self._in_backward:
            self.windows.phase_changed("optimizer")

    def optimizer_ends(self, optimizer: object) -> None:
        self._in_optimizer = False
        if self._is_blind():
            return
        key = self._keys.of(optimizer)
        self._forget_deleted()
        if self._in_backward:
            # Backward may run on another thread: a step ends where it began.
            self._stepped_in_backward.append(key)
            return
        self.windows.phase_changed("other")
        self.finder.optimizer_stepped(key)

    def _forget_deleted(self) -> None:
        while self._keys.gone:
            self.finder.optimizer_gone(self._keys.gone.pop())

    def batch_came(self, waited_ns: int, workers: int, iterator: int | None = None) -> None:
        self._run.batch_came(waited_ns, iterator)
        self._bystander.waited(waited_ns, workers)

    def mark(self) -> None:
        if not self._device.is_capturing:
            self.finder.mark()

    def give_up(self, *, count_on: bool) -> list[Exception]:
        """End everything that is active in the script's process, after an error of boundby; return
        further errors.

        `count_on`: continue to find steps, to end after as many as planned.
        """
        failed: list[Exception] = []
        quietly = Guard(failed.append)
        quietly.do(self._end_windows)
        quietly.do(self._bystander.end)
        quietly.do(self._evidence.end)
        if self.graphs is not None:
            quietly.do(self.graphs.close)
        if count_on:
            self.windows.count_on()
        return failed

    def _end_windows(self) -> None:
        # Both wait for the device, which breaks a capture: they end with the script instead.
        if not self._device.is_capturing:
            try:
                self.windows.finish()
            finally:
                self._profiler.stop()

    def _is_blind(self) -> bool:
        is_over = self.windows.window is Window.DONE and not self._follows_run
        return is_over or self._device.is_capturing

    def capture(self, *, how: How = "ended") -> Capture:
        """Return everything recorded so far; the script has ended, has failed or is being ended."""
        with outside_modes(self._torch):
            return self._capture(how)

    def _capture(self, how: How) -> Capture:
        windows = self.windows
        stopped_in = windows.window
        windows.finish()
        # If the profiler was never started, release the script's.
        self._profiler.stop()
        taken = Capture(
            step_by=self.finder.found_by,
            main_kind=windows.main_kind,
            profiled=windows.profiled[: self._whole_profiled],
            first_profiled=windows.first_profiled,
            cpu_wait=self._coreless[: self._whole_profiled],
            fresh_pages=self._fresh_pages[: self._whole_profiled],
            kinds=dict(self.finder.kinds),
            seen=dict(self.finder.seen) | windows.skipped_words(),
            settings=self._settings or self._read_settings(),
            evidence=self._evidence.evidence(),
            optimizers_made_at=list(self._stack.made_at),
            trainer=self._stack.trainer,
        )
        if self._evidence.failed:
            failure = failure_of(_NO_EVIDENCE, self._evidence.failed)
            taken.notes.append(Note(code="evidence-failed", text=failure.line))
        for sample in windows.warmup:
            taken.warmup.setdefault(sample.kind, []).append(sample.ns)
        for sample in windows.clean:
            taken.clean.setdefault(sample.kind, []).append(sample.ns)
        taken.issue = windows.issue
        taken.addition_ns = [ns for speed in self._host_speeds.values() for ns in speed.samples_ns]
        taken.issue_addition_ns = self._host_speeds[Window.ISSUE].samples_ns
        taken.phases = usual_phases(windows.issue, windows.steady)
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            taken.rank, taken.world = distributed.get_rank(), distributed.get_world_size()
        if self._device.is_cuda:
            taken.cuda_index = self._torch.cuda.current_device()
        taken.host_counters = self._bystander.host_counters(
            tuple(sample.ns for sample in windows.clean),
            self._device.peak_bytes,
            0.0 if self._device.is_cuda else fault_ns(self._torch),
        )
        if self._profiler.trace.exists():
            taken.trace = self._profiler.trace
            taken.results = self._profiler.results
            taken.line_trace = self._profiler.line_tracer.trace
            taken.samples = self._profiler.sampler.samples()
            taken.call_cost = self._profiler.call_cost
            taken.kernel_lines = kernel_lines()
            taken.compiled = compiled_graphs()
            if any(graph.is_of_another_script for graph in taken.compiled.values()):
                taken.notes.append(_OLD_LINES)
        if self.graphs is not None:
            taken.graphs, taken.replays = self.graphs.close()
            if self.graphs.failed:
                taken.failure = failure_of(_NO_GRAPH_RECORDING, self.graphs.failed)
                taken.notes.append(Note(code="graph-recording-failed", text=taken.failure.line))
        taken.notes += self._what_is_missing(stopped_in, advise=not taken.profiled_steps, how=how)
        return taken

    def _what_is_missing(self, window: Window, *, advise: bool, how: How) -> list[Note]:
        """A note for each thing that kept a window from being filled."""
        missing: list[Note] = []
        if self._profiler.problem:
            missing.append(Note(code="profiler-unavailable", text=self._profiler.problem))
        if self.windows.unprofiled is not None:
            text = _ANOTHER_KIND.format(self.windows.unprofiled)
            missing.append(Note(code="other-kind-profiled", text=text))
        if self._disturbed:
            missing.append(_PROFILED_ITSELF)
        steps = self.windows.steps
        if self._awaits_ns() == math.inf and window is Window.WARMUP:
            missing.append(_UNCLEAR)
        elif steps and window not in (Window.EVIDENCE, Window.COUNTED, Window.DONE):
            wanted = self._plan.profiled if advise else 0
            text = shortfall(
                window.value,
                steps,
                wanted,
                spelling=self._spelling,
                share=self.windows.main_share,
                how=how,
            )
            missing.append(Note(code="too-few-steps", text=text))
        return missing

    def _read_settings(self) -> dict[str, Any]:
        torch = self._torch
        return {
            "float32": float32_allowed(torch),
            "threads": int(torch.get_num_threads()),
            "torch": str(torch.__version__),
        }


def _coreless_so_far() -> float:
    """How long this thread has been runnable without a core since it began."""
    so_far = thread_time(threading.get_native_id())
    return so_far.delayed_ns if so_far is not None else 0.0
