"""The watcher that turns a running JAX script into a capture."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from boundby.capture.host.counters import HostCounterSampler
from boundby.capture.host.speed import HostSpeedSampler
from boundby.capture.jax import compat
from boundby.capture.jax.compilations import Compilation, Compilations
from boundby.capture.jax.device import JaxDevice
from boundby.capture.jax.hooks import Function, JaxHooks
from boundby.capture.jax.line_recorder import LineRecord
from boundby.capture.jax.profiler import JaxProfiler
from boundby.capture.jax.step_finder import JaxStepFinder
from boundby.capture.process.guard import Failure, Guard
from boundby.capture.process.plan import (
    MOST_AWAITED_NS,
    PROFILER_START,
    How,
    Plan,
    Spelling,
    shortfall,
)
from boundby.capture.process.run_clock import RunClock
from boundby.capture.process.windows import Window, Windows
from boundby.capture.torch.phases import usual_phases
from boundby.model.host_counters import HostCounters
from boundby.model.jax_facts import JaxHostArray
from boundby.model.note import Note
from boundby.model.run import RunParts
from boundby.model.step_kind import StepKind
from boundby.runtime.step_hooks import StepHook, active_hooks


@dataclasses.dataclass(slots=True, kw_only=True)
class JaxCapture:
    """Everything recorded of one script."""

    main_kind: str | None
    clean: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    warmup: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    kinds: dict[str, StepKind] = dataclasses.field(default_factory=dict)  # by label
    addition_ns: list[float] = dataclasses.field(
        default_factory=list
    )  # of the host: ns an addition
    issue_addition_ns: list[float] = dataclasses.field(default_factory=list)
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    issue: list[dict[str, float]] = dataclasses.field(default_factory=list)
    trace: Path | None = None
    lines: LineRecord | None = None  # of the first profiled step
    profiled: list[str] = dataclasses.field(default_factory=list)
    first_profiled: int = PROFILER_START
    platform: str = "cpu"
    functions: list[Function] = dataclasses.field(default_factory=list)
    checkpoints: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    doubles_at: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    anchor: Function | None = None
    donates: bool | None = None
    leaves: int | None = None
    compilations: list[Compilation] = dataclasses.field(default_factory=list)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    host_counters: HostCounters = dataclasses.field(default_factory=HostCounters)
    seen: dict[str, int] = dataclasses.field(default_factory=dict)
    carried_bytes: int | None = None
    host_arrays: list[JaxHostArray] = dataclasses.field(default_factory=list)
    started: list[str] = dataclasses.field(default_factory=list)
    rank: int | None = None
    world: int | None = None
    failure: Failure | None = None
    run: RunParts | None = None
    notes: list[Note] = dataclasses.field(default_factory=list)

    @property
    def profiled_steps(self) -> list[int]:
        """The indices of the profiled steps that can be analysed."""
        if self.trace is None:
            return []
        kinds = enumerate(self.profiled)
        return [at for at, kind in kinds if at >= self.first_profiled and kind == self.main_kind]


class JaxRecorder:
    """Implements the hooks' `CallListener`; one per run."""

    def __init__(
        self,
        jax: Any,
        *,
        plan: Plan,
        by_marks: bool,
        folder: Path,
        on_done: Callable[[], None],
        hooks: JaxHooks,
        spelling: Spelling = "options",
        guard: Guard | None = None,
        on_first_step: Callable[[], None] = lambda: None,
        run: RunClock | None = None,
    ) -> None:
        self._jax = jax
        self._follows_run = run is not None
        self._run = run or RunClock()
        self._plan = plan
        self._spelling = spelling
        self._hooks = hooks
        self._device = JaxDevice(wait_for_all=partial(compat.wait_for_all, jax))
        self._profiler = JaxProfiler(jax, self._device, folder)
        self._sampler = HostCounterSampler()
        self._host_speeds = {window: HostSpeedSampler() for window in Window}
        self.windows = Windows(
            plan,
            self._device,
            self._profiler,
            on_done,
            observer=self._sampler,
            look=lambda window: self._host_speeds[window].sample(),
            awaits_ns=lambda: MOST_AWAITED_NS if self.finder.awaits_more(hooks.functions) else 0.0,
        )
        self.finder = JaxStepFinder(jax, self._step_ended, self._start_over, by_marks=by_marks)
        self._compilations = Compilations(jax, hooks, lambda: self.windows.steps, guard)
        self._run.add_compiler(lambda: self._compilations.spent_ns)
        self._on_first_step = on_first_step
        self._kinds: dict[str, StepKind] = {}
        self._compile_ns = 0.0
        self._clean_compile_ns: list[float] = []
        self._settings: dict[str, Any] = {}

    def calls(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        if self.windows.window is Window.DONE:
            # Of a script that goes on, only the parts of its run are still counted.
            return self.finder.calls_begin(function, args, kwargs) if self._follows_run else None
        if not self.windows.steps:
            self.windows.phase_changed("forward")
        if active_hooks:
            for hook in _hooks():
                hook.call_begins(function, args, kwargs)
        return self.finder.calls_begin(function, args, kwargs)

    @property
    def device(self) -> JaxDevice:
        return self._device

    def mark(self) -> None:
        self.finder.mark()

    def computed(self, result: object) -> None:
        """Record a result of the step that is about to end."""
        self.finder.keep(result)

    def _step_ended(self, ended: StepKind, array: Any) -> None:
        kind = ended.label
        if self.windows.window is Window.DONE:
            self._run.step_ended(kind, mode=ended.mode, distorted=True)
            return
        if not self.windows.steps:
            self._on_first_step()
        if array is not None:
            self._device.completed(array)
        self._kinds.setdefault(kind, ended)
        if self.windows.window is Window.CLEAN:
            spent = self._compilations.spent_ns
            self._clean_compile_ns.append(spent - self._compile_ns)
            self._compile_ns = spent
        if self.windows.window is Window.PROFILED:
            self._settings = self._settings or self._read_settings()
        if active_hooks:
            for hook in _hooks():
                hook.step_ended(kind)
        before = self.windows.window
        distorted = before not in (Window.WARMUP, Window.CLEAN)
        is_queued = array is not None and not compat.is_computed(array)
        self._run.step_ended(kind, mode=ended.mode, distorted=distorted, is_queued=is_queued)
        began, waited = time.perf_counter_ns(), self._device.waited_ns
        try:
            self.windows.step_ended(kind)
        finally:
            # What the script had queued would have taken its time anyway.
            waited = self._device.waited_ns - waited
            self._run.own(time.perf_counter_ns() - began - waited)
        if before is not Window.CLEAN and self.windows.window is Window.CLEAN:
            self._clean_compile_ns = []
            self._compile_ns = self._compilations.spent_ns

    def _start_over(self) -> None:
        """Steps end at another function from now on."""
        self.windows.start_over()
        self._run.start_over()

    def give_up(self, *, count_on: bool) -> list[Exception]:
        """End everything that is active in the script's process, after an error of boundby; return
        further errors."""
        failed: list[Exception] = []
        quietly = Guard(failed.append)
        quietly.do(self.windows.finish)
        quietly.do(self._profiler.stop)
        quietly.do(self._sampler.end)
        quietly.do(self._compilations.close)
        if count_on:
            self.windows.count_on()
        return failed

    def capture(self, *, how: How = "ended") -> JaxCapture:
        """Return everything recorded so far; the script has ended, has failed or is made to end."""
        windows = self.windows
        stopped_in = windows.window
        windows.finish()
        self._profiler.stop()
        self._compilations.close()
        counters = self._sampler.host_counters(
            tuple(sample.ns for sample in windows.clean), self._peak_bytes()
        )
        if any(self._clean_compile_ns):
            compiled = tuple(self._clean_compile_ns)
            counters = msgspec.structs.replace(counters, compiler_ns=compiled)
        taken = JaxCapture(
            main_kind=windows.main_kind,
            kinds=dict(self._kinds),
            addition_ns=[ns for speed in self._host_speeds.values() for ns in speed.samples_ns],
            issue_addition_ns=self._host_speeds[Window.ISSUE].samples_ns,
            profiled=list(windows.profiled),
            first_profiled=windows.first_profiled,
            platform=self._platform(),
            functions=self._hooks.functions,
            checkpoints=list(self._hooks.places.checkpoints),
            doubles_at=list(self._hooks.places.doubles),
            anchor=self.finder.anchor,
            donates=self.finder.donates,
            leaves=self.finder.leaves,
            carried_bytes=self.finder.carried_bytes,
            host_arrays=self.finder.host_arrays,
            compilations=list(self._compilations.compilations),
            settings=self._settings or self._read_settings(),
            host_counters=counters,
            seen={"calls": self.finder.calls, "marks": self.finder.marks},
            trace=self._profiler.trace,
            lines=self._profiler.lines.record,
        )
        for sample in windows.warmup:
            taken.warmup.setdefault(sample.kind, []).append(sample.ns)
        for sample in windows.clean:
            taken.clean.setdefault(sample.kind, []).append(sample.ns)
        taken.issue = windows.issue
        taken.phases = usual_phases(windows.issue, windows.steady)
        if self._jax.distributed.is_initialized():
            taken.rank, taken.world = self._jax.process_index(), self._jax.process_count()
        if self._profiler.problem:
            taken.notes.append(Note(code="profiler-unavailable", text=self._profiler.problem))
        if windows.steps and stopped_in not in (Window.COUNTED, Window.DONE):
            wanted = self._plan.profiled if not taken.profiled_steps else 0
            text = shortfall(
                stopped_in.value,
                windows.steps,
                wanted,
                spelling=self._spelling,
                share=windows.main_share,
                how=how,
            )
            taken.notes.append(Note(code="too-few-steps", text=text))
        return taken

    def _platform(self) -> str:
        # A script that never computed has no backend, and asking would start one.
        if not self.finder.calls and not self.windows.steps:
            return "cpu"
        return compat.platform(self._jax)

    def _peak_bytes(self) -> int | None:
        if not self.windows.steps:
            return None
        stats = self._jax.local_devices()[0].memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        return int(peak) if peak is not None else None

    def _read_settings(self) -> dict[str, Any]:
        config = self._jax.config
        return {
            "jax": str(self._jax.__version__),
            "matmul_precision": config.jax_default_matmul_precision,
            "compilation_cache": config.jax_compilation_cache_dir,
            "debug_nans": bool(config.jax_debug_nans),
        }


def _hooks() -> list[StepHook]:
    return [hook for hook in active_hooks if hook.framework == "jax"]
