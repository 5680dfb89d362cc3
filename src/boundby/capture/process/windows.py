"""The measurement windows of a run: warm-up, issue, clean, issue again, profiled, evidence.

Clean steps come before profiled ones, because a profiler slows its process permanently; their
phases are timed with the host's clock alone. In issue steps every phase starts from an idle device,
so that the host never waits for it. Half of them come before the clean steps and half after,
because the speed of a shared host changes within seconds. This module does not know torch: the
device, the profiler and the clock are passed in.

Loaded before the script: nothing heavy is imported, because the script may set options that numpy
and torch read when they are imported.
"""

from __future__ import annotations

import enum
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from boundby.capture.process.instruments import Device, EvidenceObserver, Observer, Profiler
from boundby.capture.process.kinds import (
    STEADY_STEPS,
    KindCount,
    Sample,
    are_steady,
    main_kind,
)
from boundby.capture.process.plan import PROFILER_START, Plan, is_known
from boundby.capture.torch.phases import Phases

# Steps in which values are checked; more if something is still in use in the next step.
_EVIDENCE = 3
_MOST_EVIDENCE = 20  # time limit
# After how many steps each the precision of the clean steps is checked again.
_ASK_EVERY = 5


class Window(enum.Enum):
    WARMUP = "warm-up"
    CLEAN = "clean steps"
    ISSUE = "host-timing steps"
    PROFILED = "profiled steps"
    EVIDENCE = "steps in which values were checked"
    COUNTED = "steps that were only counted"
    DONE = "done"


class Windows:
    """Moves from window to window at step ends; calls `on_done` after the last one."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        profiler: Profiler,
        on_done: Callable[[], None],
        clock: Callable[[], int] = time.perf_counter_ns,
        observer: Observer | None = None,
        look: Callable[[Window], None] = lambda _: None,
        evidence: EvidenceObserver | None = None,
        awaits_ns: Callable[[], float] = lambda: 0.0,
        in_row: Callable[[], bool] = lambda: False,
        on_window: Callable[[Window, int, str | None], None] = lambda *_: None,
    ) -> None:
        """`look` is called between steps, but not between clean ones. `evidence` observes a few
        untimed steps after all others. `awaits_ns`: how long warm-up waits for another kind of
        step, which may take more time than those so far; without end if infinite. `in_row`:
        whether the step that ends belongs to an evaluation or a rollout. `on_window` gets each
        window that opens, the number of steps so far and their main kind."""
        self._on_window = on_window
        self._evidence = evidence
        self._awaits_ns = awaits_ns
        self._observer = observer
        self._look = look
        self.window = Window.WARMUP
        self.steps = 0
        self.warmup: list[Sample] = []
        self.clean: list[Sample] = []
        self.profiled: list[str] = []
        self.skipped: dict[str, int] = {}  # steps before warm-up of kinds that are not wanted
        # The first includes the start of the profiler, and counts only if it is the only one.
        self.first_profiled = PROFILER_START
        self._issued: list[tuple[str, dict[str, float]]] = []  # each step's kind and phases
        self._paced: list[tuple[str, dict[str, float]]] = []  # the same of clean steps
        self._plan = plan
        self._device = device
        self._profiler = profiler
        self._on_done = on_done
        self._clock = clock
        self._began = clock()
        self._last = self._began
        self._opened = self._began
        self._has_begun = False
        self._marks: list[Any] = []
        self._times: list[int] = []
        self._taken: list[dict[str, float]] = []  # the phases of each clean step so far
        self._counted = KindCount(clock, in_row)
        self._late_ns = 0.0  # how much longer profiled steps took than clean ones
        self._issue = 0  # how many steps the open issue window has
        self._phases = Phases(device.sync, clock)
        self._steady = Phases(lambda: None, clock)

    @property
    def main_kind(self) -> str | None:
        """The kind of step that took most of the time so far.

        Once there are clean steps, only kinds among them count: a model that was called a few times
        before its graph was captured is not called again, however long that took. At the end, only
        profiled kinds count: of any other kind only the time is known.
        """
        seen = {sample.kind for sample in self.clean}
        if self.window is Window.DONE:
            seen = seen.intersection(self.profiled[self.first_profiled :]) or seen
        steps = [*self.warmup[1:], *self.clean]
        of_these = [sample for sample in steps if not seen or sample.kind in seen]
        return self._main_of(of_these) or self._main_of(self.warmup)

    def _main_of(self, samples: Sequence[Sample]) -> str | None:
        return main_kind([sample for sample in samples if self._is_wanted(sample.kind)])

    def _is_wanted(self, kind: str) -> bool:
        return self._plan.kind is None or kind.startswith(self._plan.kind)

    @property
    def issue(self) -> list[dict[str, float]]:
        """The phases of the main kind's steps, each phase from an idle device."""
        main = self.main_kind
        return [phases for kind, phases in self._issued if kind == main]

    @property
    def steady(self) -> list[dict[str, float]]:
        """The phases of the main kind's clean steps, on the host's clock."""
        main = self.main_kind
        return [phases for kind, phases in self._paced if kind == main]

    @property
    def unprofiled(self) -> str | None:
        """The kind that the windows waited for, if another was profiled instead."""
        waited_for = self._counted.main if self.profiled else None
        return waited_for if waited_for != self.main_kind else None

    @property
    def main_share(self) -> float:
        """The share of the main kind in the steps so far; 1 if any kind counts."""
        main = None if self._plan.in_step else self.main_kind
        kinds = [sample.kind for sample in (*self.warmup, *self.clean)]
        kinds += [kind for kind, _ in self._issued]
        return kinds.count(main) / len(kinds) if main in kinds else 1.0

    def skipped_words(self) -> dict[str, int]:
        """The steps that the user's choice of a kind left out, for a message without any other."""
        if self.main_kind is not None:
            return {}
        wanted = self._plan.kind
        return {f"{kind!r} steps, not of kind {wanted!r}": n for kind, n in self.skipped.items()}

    def step_ended(self, kind: str) -> None:
        """Called at every step's end; all windows open and close here."""
        self.steps += self.window is not Window.DONE
        self._has_begun = True
        match self.window:
            case Window.WARMUP:
                self._warm(kind)
            case Window.CLEAN:
                self._measure_clean(kind)
            case Window.ISSUE:
                self._measure_issue(kind)
            case Window.PROFILED:
                self._profile(kind)
            case Window.EVIDENCE:
                self._look_at_values(kind)
            case Window.COUNTED:
                if self.steps >= self._plan.total:
                    self._end()
            case Window.DONE:
                pass

    def phase_changed(self, phase: str) -> None:
        """A phase begins inside a step; in the issue window each starts from an idle device."""
        if self.window is Window.ISSUE:
            self._phases.change(phase)
        elif self.window is Window.CLEAN:
            self._steady.change(phase)
        elif self.window is Window.PROFILED:
            self._profiler.mark(phase)
        elif not self._has_begun:
            # Time before the first call of the first step is not part of a step.
            self._has_begun = True
            self._last = self._clock()

    def start_over(self) -> None:
        """Forget the steps so far, because more important ones begin.

        Not once the profiler has run: clean steps are no longer possible then.
        """
        if self.window in (Window.WARMUP, Window.CLEAN, Window.ISSUE):
            if self.window is Window.CLEAN and self._observer is not None:
                self._observer.end()
            self.window = Window.WARMUP
            self.steps = 0
            self.warmup, self.clean, self._issued, self._paced = [], [], [], []
            self._counted.start_over()
            self._began = self._last = self._clock()

    def finish(self) -> None:
        """The script has ended or failed: close the open window."""
        ended_in, self.window = self.window, Window.DONE
        if ended_in is Window.CLEAN:
            self._close_clean()
        elif ended_in is Window.PROFILED:
            self._profiler.stop()
        elif ended_in is Window.EVIDENCE and self._evidence is not None:
            self._evidence.end()

    def count_on(self) -> None:
        """Only count steps from now on: a rank must not end before the others."""
        self.window = Window.COUNTED

    def _warm(self, kind: str) -> None:
        now = self._clock()
        if not self._is_wanted(kind):
            self.skipped[kind] = self.skipped.get(kind, 0) + 1
            self._last = now
            return
        self.warmup.append(Sample(kind=kind, ns=now - self._last))
        self._look(self.window)
        self._last = self._clock()
        if self._is_warm(now):
            self._open_issue()

    def _is_warm(self, now: int) -> bool:
        count = len(self.warmup)
        # Without the first step, which may include imports and compilation.
        spent_ns = sum(sample.ns for sample in self.warmup[1:])
        awaited_ns = 0.0 if self._plan.kind or self._plan.in_step else self._awaits_ns()
        if self._plan.warmup is not None and awaited_ns != math.inf:
            return count >= self._plan.warmup
        if spent_ns < awaited_ns:
            return False
        if count >= self._plan.most_warmup or (
            count > self._plan.least_warmup and now - self._began > self._plan.most_warmup_s * 1e9
        ):
            return True
        main = self.main_kind
        times = [sample.ns for sample in self.warmup[1:] if sample.kind == main]
        return count >= self._plan.least_warmup and are_steady(times)

    def _open_clean(self) -> None:
        self._device.sync()
        self._open(Window.CLEAN)
        if self._observer is not None:
            self._observer.begin()
        self._marks = [self._device.mark()]
        self._times, self._taken = [], []
        self._steady.begin()
        self._opened = self._last = self._clock()

    def _measure_clean(self, kind: str) -> None:
        # Few calls: what this costs is part of the next step.
        self._marks.append(self._device.mark())
        if self._observer is not None:
            self._observer.step()
        counted, now = self._counted, self._clock()
        self._taken.append(self._steady.turn(now))
        counted.add(kind, now)
        if counted.main is None or kind == counted.main:
            self._times.append(now - self._last)
        self._last = now
        if self._is_measured(0.0 if self._plan.in_step else (now - self._opened) / 1e9):
            self._close_clean()
            self._open_issue()

    def _is_measured(self, spent_s: float) -> bool:
        plan, count = self._plan, self._counted.count
        if self._has_given_up(plan.clean):
            return True
        if count >= plan.clean:
            if count >= int(plan.stretch * plan.clean):
                return True
            if plan.in_step or spent_s >= plan.least_clean_s:
                return True
            if plan.known is not None and count % _ASK_EVERY == 0:
                # Of the host's times between step ends: they equal the device's once the host has
                # to wait for it.
                return is_known(self._times, plan.known)
        return spent_s > plan.most_clean_s and count >= STEADY_STEPS

    def _close_clean(self) -> None:
        self._device.sync()
        if self._observer is not None:
            self._observer.end()
        times = zip(self._counted.kinds, self._device.between(self._marks), strict=True)
        self.clean = [Sample(kind=kind, ns=ns) for kind, ns in times]
        self._paced = list(zip(self._counted.kinds, self._taken, strict=True))

    def _open_issue(self) -> None:
        """Half of the issue steps come before the clean steps, the missing ones after: those before
        may have been of another kind."""
        wanted = self._plan.issue
        if self.clean:
            self._issue = wanted - (wanted // 2 if self._plan.in_step else len(self.issue))
        else:
            self._issue = wanted // 2
        if not self._issue:
            self._after_issue()
            return
        self._open(Window.ISSUE)
        self._look(self.window)
        self._phases.begin()

    def _measure_issue(self, kind: str) -> None:
        times = self._phases.end()
        self._counted.add(kind)
        self._issued.append((kind, times))
        self._look(self.window)
        if self._has_enough(self._issue):
            self._after_issue()
        else:
            self._phases.begin()

    def _after_issue(self) -> None:
        if self.clean:
            self._open_profiled()
        else:
            self._open_clean()

    def _open_profiled(self) -> None:
        # If the profiler does not start here, other ranks may still profile: take as many steps.
        if self._plan.profiled and (self._profiler.start() or self._plan.in_step):
            self._open(Window.PROFILED)
            self._late_ns, self._last = 0.0, self._clock()
        else:
            self._end()

    def _profile(self, kind: str) -> None:
        self._late_ns += self._clock() - self._last - self._usual_ns(kind)
        self.profiled.append(kind)
        is_full = self._profiler.is_full(self._late_ns, len(self.profiled))
        if is_full and not self._counted.count and self._counted.main in (None, kind):
            self.first_profiled = min(self.first_profiled, len(self.profiled) - 1)
        # One more than wanted: the first includes the start of the profiler.
        if len(self.profiled) > self.first_profiled:
            self._counted.add(kind)
        if self._has_enough(self._plan.profiled) or (is_full and self._counted.count):
            self._profiler.stop()
            self._stop_profiling()
        else:
            self._profiler.step()
            self._last = self._clock()

    def _stop_profiling(self) -> None:
        if self._plan.in_step and self.steps < self._plan.total:
            self.count_on()
        elif self._evidence is not None and not self._plan.in_step:
            self._open(Window.EVIDENCE)
            self._evidence.begin()
        else:
            self._end()

    def _look_at_values(self, kind: str) -> None:
        self._counted.add(kind)
        if self._evidence is None:
            self._end()
            return
        self._evidence.step()
        most = _MOST_EVIDENCE if self._evidence.wants_more else _EVIDENCE
        if len(self._counted.kinds) >= most:
            self._evidence.end()
            self._end()

    def _usual_ns(self, kind: str) -> float:
        """The median time of clean steps of the kind; of all clean steps if there are none."""
        times = [sample.ns for sample in self.clean if sample.kind == kind]
        return statistics.median(times or [sample.ns for sample in self.clean])

    def _open(self, window: Window) -> None:
        self.window = window
        self._on_window(window, self.steps, self.main_kind)
        # Issue steps before the clean ones may be of any kind: there are more after those.
        is_any = self._plan.in_step or (window is Window.ISSUE and not self.clean)
        self._counted.open(None if is_any else self.main_kind)

    def _has_enough(self, wanted: int) -> bool:
        return self._counted.count >= wanted or self._has_given_up(wanted)

    def _has_given_up(self, wanted: int) -> bool:
        return self._counted.has_given_up(wanted, is_profiled=self.window is Window.PROFILED)

    def _end(self) -> None:
        self.window = Window.DONE
        self._on_window(self.window, self.steps, self.main_kind)
        self._on_done()
