"""The windows of one run: warm-up, clean steps, issue steps, profiled steps; then it is enough.

Clean steps carry no profiler, because one that has run slows its process for good. Issue steps
start every phase from an idle device, to see how long the host alone takes. Nothing here knows
torch: the device and the clock are handed in, so that tests bring their own.

Like all of capture.live, this is loaded before the script: it imports nothing heavy, because a
script may set how numpy and torch are to be loaded.
"""

from __future__ import annotations

import enum
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

# Warm-up ends when the last few steps of the main kind agree this well.
_STABLE = 0.10
_STABLE_STEPS = 3
_FEWEST_WARMUP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many steps each window takes. `warmup` None: until step time is stable."""

    warmup: int | None = None
    clean: int = 10
    issue: int = 3
    profiled: int = 3
    most_warmup: int = 30
    most_warmup_s: float = 120.0
    most_clean_s: float = 20.0


class Device(Protocol):
    """The device's clock: marks in its stream of work, and waiting for it."""

    def mark(self) -> Any: ...

    def between(self, marks: list[Any]) -> list[float]:
        """Times between consecutive marks in ns."""
        ...

    def sync(self) -> None: ...


class Profiler(Protocol):
    def start(self) -> None: ...

    def step(self) -> None: ...

    def stop(self) -> None: ...


class Window(enum.Enum):
    WARMUP = "warm-up"
    CLEAN = "clean steps"
    ISSUE = "issue steps"
    PROFILED = "profiled steps"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    kind: str
    ns: float


class Windows:
    """Moves from window to window at step ends; `on_done` is called when there is enough."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        profiler: Profiler,
        on_done: Callable[[], None],
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.window = Window.WARMUP
        self.warmup: list[Sample] = []
        self.clean: list[Sample] = []
        self.issue: list[dict[str, float]] = []
        self.profiled: list[str] = []
        self._plan = plan
        self._device = device
        self._profiler = profiler
        self._on_done = on_done
        self._clock = clock
        self._began = clock()
        self._last = self._began
        self._marks: list[Any] = []
        self._kinds: list[str] = []
        self._phase: tuple[str, int] | None = None
        self._phases: dict[str, float] = defaultdict(float)

    @property
    def main_kind(self) -> str | None:
        """The kind of step in which most of the time went so far."""
        totals: dict[str, float] = defaultdict(float)
        for sample in self.warmup[1:] + self.clean or self.warmup:
            totals[sample.kind] += sample.ns
        return max(totals, key=lambda kind: totals[kind]) if totals else None

    def step_ended(self, kind: str) -> None:
        """Called at every step's end; all windows open and close here."""
        match self.window:
            case Window.WARMUP:
                self._warm(kind)
            case Window.CLEAN:
                self._measure_clean(kind)
            case Window.ISSUE:
                self._measure_issue(kind)
            case Window.PROFILED:
                self._profile(kind)
            case Window.DONE:
                pass

    def phase_changed(self, phase: str) -> None:
        """A phase begins inside a step; in the issue window each starts from an idle device."""
        if self.window is not Window.ISSUE:
            return
        now = self._clock()
        if self._phase is not None:
            self._phases[self._phase[0]] += now - self._phase[1]
        self._device.sync()
        self._phase = (phase, self._clock())

    def finish(self) -> None:
        """The script is over, or failed: keep what there is."""
        if self.window is Window.CLEAN:
            self._close_clean()
        if self.window is Window.PROFILED:
            self._profiler.stop()
        self.window = Window.DONE

    def _warm(self, kind: str) -> None:
        now = self._clock()
        self.warmup.append(Sample(kind=kind, ns=now - self._last))
        self._last = now
        if self._is_warm(now):
            self._device.sync()
            self._open_clean()

    def _is_warm(self, now: int) -> bool:
        count = len(self.warmup)
        if self._plan.warmup is not None:
            return count >= self._plan.warmup
        if count >= self._plan.most_warmup or (
            count > _FEWEST_WARMUP and now - self._began > self._plan.most_warmup_s * 1e9
        ):
            return True
        main = [sample.ns for sample in self.warmup[1:] if sample.kind == self.main_kind]
        if count < _FEWEST_WARMUP or len(main) < _STABLE_STEPS:
            return False
        recent = main[-_STABLE_STEPS:]
        return max(recent) - min(recent) <= _STABLE * statistics.median(recent)

    def _open_clean(self) -> None:
        self.window = Window.CLEAN
        self._marks, self._kinds = [self._device.mark()], []
        self._last = self._clock()

    def _measure_clean(self, kind: str) -> None:
        self._marks.append(self._device.mark())
        self._kinds.append(kind)
        wanted = sum(kind == (self.main_kind or kind) for kind in self._kinds)
        late = self._clock() - self._last > self._plan.most_clean_s * 1e9
        if wanted >= self._plan.clean or (late and wanted >= _STABLE_STEPS):
            self._close_clean()
            self._open_issue()

    def _close_clean(self) -> None:
        self._device.sync()
        for kind, ns in zip(self._kinds, self._device.between(self._marks), strict=True):
            self.clean.append(Sample(kind=kind, ns=ns))

    def _open_issue(self) -> None:
        self.window = Window.ISSUE
        if not self._plan.issue:
            self._open_profiled()
            return
        self._phases = defaultdict(float)
        self._phase = None
        self.phase_changed("forward")

    def _measure_issue(self, kind: str) -> None:
        self.phase_changed("forward")
        if kind == self.main_kind:
            self.issue.append(dict(self._phases))
        self._phases = defaultdict(float)
        if len(self.issue) >= self._plan.issue:
            self._open_profiled()

    def _open_profiled(self) -> None:
        if not self._plan.profiled:
            self._end()
            return
        self.window = Window.PROFILED
        self._profiler.start()

    def _profile(self, kind: str) -> None:
        self.profiled.append(kind)
        # The first profiled step pays for the profiler's own start: one more than wanted.
        wanted = sum(kind == self.main_kind for kind in self.profiled[1:])
        if wanted >= self._plan.profiled or len(self.profiled) > 4 * self._plan.profiled + 4:
            self._profiler.stop()
            self._end()
        else:
            self._profiler.step()

    def _end(self) -> None:
        self.window = Window.DONE
        self._on_done()
