"""The windows of one run: warm-up, clean steps between issue steps, profiled steps; then it is
enough.

Clean steps carry no profiler, because one that has run slows its process for good; their phases are
timed on the host's clock alone. Issue steps start every phase from an idle device, to see how long
the host takes where it has to wait for nothing: a half of them before the clean steps and a half
after, since a shared host changes its pace within seconds. Nothing here knows torch: the device and
the clock are handed in, so that tests bring their own.

Like all of capture.live, this is loaded before the script: it imports nothing heavy, because a
script may set how numpy and torch are to be loaded.
"""

from __future__ import annotations

import enum
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from boundby.capture.process.plan import PROFILER_START, Plan, is_known
from boundby.capture.torch.phases import Phases

# Warm-up ends when the last few steps of the main kind agree this well; or, on a busy host where
# no three do, when they are not faster any more than the few before.
_STABLE = 0.10
_STABLE_STEPS = 3
_FASTER = 0.95
# A window that waits for steps of the main kind gives up after this many times as many of any;
# where none at all was profiled, later. Those of an evaluation or a rollout count as one, unless
# they go on for longer than this, and longer than all that came before them.
_MOST_OTHERS, _MOST_WITHOUT_ONE = 4, 12
_LONG_ROW_NS = 1e9  # assumed: a row of other steps this long is an evaluation
# Warm-up waits no longer for another kind of step that is known to come.
_MOST_AWAITED_NS = 10e9
# Values that are the same in two steps, and graphs that are used in the one after.
_EVIDENCE = 3
_MOST_EVIDENCE = 20
# How often clean steps that go on are asked whether they suffice.
_ASK_EVERY = 5


class Device(Protocol):
    """The device's clock: marks in its stream of work, and waiting for it."""

    def mark(self) -> Any: ...

    def between(self, marks: list[Any]) -> list[float]:
        """Times between consecutive marks in ns."""
        ...

    def sync(self) -> None: ...


class Profiler(Protocol):
    def start(self) -> bool:
        """False where it cannot."""
        ...

    def step(self) -> None: ...

    def mark(self, phase: str) -> None:
        """A phase of the step begins: write it into the profile."""
        ...

    def is_full(self, late_ns: float, steps: int) -> bool:
        """Whether one step more is more than can be read, after steps that took so much longer
        with it than without."""
        ...

    def stop(self) -> None: ...


class Observer(Protocol):
    """Stands by while clean steps are taken."""

    def begin(self) -> None: ...

    def step(self) -> None: ...

    def end(self) -> None: ...


class EvidenceObserver(Observer, Protocol):
    """Looks at values in a few steps that are not timed."""

    @property
    def wants_more(self) -> bool:
        """Whether what it has seen goes on into the next step."""
        ...


class Window(enum.Enum):
    WARMUP = "warm-up"
    CLEAN = "clean steps"
    ISSUE = "host-timing steps"
    PROFILED = "profiled steps"
    EVIDENCE = "steps in which values were checked"
    COUNTED = "steps that were only counted"
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
        observer: Observer | None = None,
        look: Callable[[Window], None] = lambda _: None,
        evidence: EvidenceObserver | None = None,
        awaits_more: Callable[[], bool] = lambda: False,
        in_row: Callable[[], bool] = lambda: False,
        on_window: Callable[[Window, int, str | None], None] = lambda *_: None,
    ) -> None:
        """`look` is called between steps, never inside one, nor between clean ones. `evidence`
        stands by in a few steps after all others, which are not timed. `awaits_more`: another kind
        of step is known to come, which may take more of the time than those so far. `in_row`:
        the step that ends is one of an evaluation or a rollout, after which training goes on.
        `on_window` is told of each window that opens, the steps so far and their main kind."""
        self._on_window = on_window
        self._in_row = in_row
        self._evidence = evidence
        self._awaits_more = awaits_more
        self._observer = observer
        self._look = look
        self.window = Window.WARMUP
        self.steps = 0
        self.warmup: list[Sample] = []
        self.clean: list[Sample] = []
        self.profiled: list[str] = []
        # The first pays for the profiler's own start, and counts only where it stays the only one.
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
        self._kinds: list[str] = []
        # The kind that counts in the open window, and how many of it there were: clean steps
        # must not pay for finding out.
        self._main: str | None = None
        self._count = 0
        self._others = 0  # of others, with a row as one
        self._was_in_row = False
        self._main_at = self._began  # when a step of the main kind ended last
        self._late_ns = 0.0  # how much longer profiled steps took than clean ones
        self._issue = 0  # how many the open window of issue steps takes
        self._phases = Phases(device.sync, clock)
        self._steady = Phases(lambda: None, clock)

    @property
    def main_kind(self) -> str | None:
        """The kind of step in which most of the time went so far.

        Of those that were still seen in clean steps, once there are any: a model that was called
        a few times before its graph is captured is called no more, however long that took. And, at
        the end, of those of them that were profiled: what is known of another is its time alone.
        """
        seen = {sample.kind for sample in self.clean}
        if self.window is Window.DONE:
            seen = seen.intersection(self.profiled[self.first_profiled :]) or seen
        steps = [*self.warmup[1:], *self.clean]
        of_these = [sample for sample in steps if not seen or sample.kind in seen]
        return main_kind(of_these) or main_kind(self.warmup)

    @property
    def issue(self) -> list[dict[str, float]]:
        """The phases of the main kind's steps, each phase from an idle device."""
        main = self.main_kind
        return [phases for kind, phases in self._issued if kind == main]

    @property
    def steady(self) -> list[dict[str, float]]:
        """The phases of its clean steps, on the host's clock."""
        main = self.main_kind
        return [phases for kind, phases in self._paced if kind == main]

    @property
    def unprofiled(self) -> str | None:
        """The kind that the windows waited for, where another had to be profiled in its place."""
        waited_for = self._main if self.profiled else None
        return waited_for if waited_for != self.main_kind else None

    @property
    def main_share(self) -> float:
        """Of the steps so far, those of the main kind; all where any kind counts."""
        main = None if self._plan.in_step else self.main_kind
        kinds = [sample.kind for sample in (*self.warmup, *self.clean)]
        kinds += [kind for kind, _ in self._issued]
        return kinds.count(main) / len(kinds) if main in kinds else 1.0

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
            # What the script did before the first call of its first step is no part of a step.
            self._has_begun = True
            self._last = self._clock()

    def start_over(self) -> None:
        """Forget the steps so far: they were not what the script is about.

        Once the profiler has run there are no clean steps to be had: then what was seen stays.
        """
        if self.window in (Window.WARMUP, Window.CLEAN, Window.ISSUE):
            if self.window is Window.CLEAN and self._observer is not None:
                self._observer.end()
            self.window = Window.WARMUP
            self.steps = 0
            self.warmup, self.clean, self._issued, self._paced = [], [], [], []
            self._began = self._last = self._clock()

    def finish(self) -> None:
        """The script is over, or failed: keep what there is."""
        ended_in, self.window = self.window, Window.DONE
        if ended_in is Window.CLEAN:
            self._close_clean()
        elif ended_in is Window.PROFILED:
            self._profiler.stop()
        elif ended_in is Window.EVIDENCE and self._evidence is not None:
            self._evidence.end()

    def count_on(self) -> None:
        """Nothing more is measured, but a rank ends when the others do: they would wait for it."""
        self.window = Window.COUNTED

    def _warm(self, kind: str) -> None:
        now = self._clock()
        self.warmup.append(Sample(kind=kind, ns=now - self._last))
        self._look(self.window)
        self._last = self._clock()
        if self._is_warm(now):
            self._open_issue()

    def _is_warm(self, now: int) -> bool:
        count = len(self.warmup)
        if self._plan.warmup is not None:
            return count >= self._plan.warmup
        # The first step may have imported and compiled for long.
        spent_ns = sum(sample.ns for sample in self.warmup[1:])
        if self._awaits_more() and spent_ns < _MOST_AWAITED_NS and not self._plan.in_step:
            return False
        if count >= self._plan.most_warmup or (
            count > self._plan.least_warmup and now - self._began > self._plan.most_warmup_s * 1e9
        ):
            return True
        main = self.main_kind
        times = [sample.ns for sample in self.warmup[1:] if sample.kind == main]
        before, recent = times[-2 * _STABLE_STEPS : -_STABLE_STEPS], times[-_STABLE_STEPS:]
        if count < self._plan.least_warmup or len(recent) < _STABLE_STEPS:
            return False
        middle = statistics.median(recent)
        if max(recent) - min(recent) <= _STABLE * middle:
            return True
        return len(before) == _STABLE_STEPS and middle >= _FASTER * statistics.median(before)

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
        self._marks.append(self._device.mark())
        self._taken.append(self._steady.end())
        self._add(kind)
        if self._observer is not None:
            self._observer.step()
        now = self._clock()
        if self._main is None or kind == self._main:
            self._times.append(now - self._last)
        self._last = now
        self._steady.begin()
        if self._is_measured(0.0 if self._plan.in_step else (now - self._opened) / 1e9):
            self._close_clean()
            self._open_issue()

    def _is_measured(self, spent_s: float) -> bool:
        plan = self._plan
        if self._has_given_up(plan.clean) or self._count >= int(plan.stretch * plan.clean):
            return True
        if self._count >= plan.clean:
            if plan.in_step or spent_s >= plan.least_clean_s:
                return True
            if plan.known is not None and self._count % _ASK_EVERY == 0:
                # Of the host's times between ends: once it is throttled, as long as the device's.
                return is_known(self._times, plan.known)
        return spent_s > plan.most_clean_s and self._count >= _STABLE_STEPS

    def _close_clean(self) -> None:
        self._device.sync()
        if self._observer is not None:
            self._observer.end()
        times = zip(self._kinds, self._device.between(self._marks), strict=True)
        self.clean = [Sample(kind=kind, ns=ns) for kind, ns in times]
        self._paced = list(zip(self._kinds, self._taken, strict=True))

    def _open_issue(self) -> None:
        """A half of them before the clean steps, and after those what is missing: the ones before
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
        self._add(kind)
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
        # Other ranks may be able to profile: then this one takes as many steps as they do.
        if self._plan.profiled and (self._profiler.start() or self._plan.in_step):
            self._open(Window.PROFILED)
            self._late_ns, self._last = 0.0, self._clock()
        else:
            self._end()

    def _profile(self, kind: str) -> None:
        self._late_ns += self._clock() - self._last - self._usual_ns(kind)
        self.profiled.append(kind)
        is_full = self._profiler.is_full(self._late_ns, len(self.profiled))
        if is_full and not self._count and self._main in (None, kind):
            self.first_profiled = min(self.first_profiled, len(self.profiled) - 1)
        # One more than wanted: the first is the profiler's own start.
        if len(self.profiled) > self.first_profiled:
            self._add(kind)
        if self._has_enough(self._plan.profiled) or (is_full and self._count):
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
        self._add(kind)
        if self._evidence is None:
            self._end()
            return
        self._evidence.step()
        most = _MOST_EVIDENCE if self._evidence.wants_more else _EVIDENCE
        if len(self._kinds) >= most:
            self._evidence.end()
            self._end()

    def _usual_ns(self, kind: str) -> float:
        """What a clean step of the kind takes; of any, where there was none."""
        times = [sample.ns for sample in self.clean if sample.kind == kind]
        return statistics.median(times or [sample.ns for sample in self.clean])

    def _open(self, window: Window) -> None:
        self.window = window
        self._on_window(window, self.steps, self.main_kind)
        # What comes before clean steps is not worth waiting for one kind: there are more after.
        is_any = self._plan.in_step or (window is Window.ISSUE and not self.clean)
        self._main = None if is_any else self.main_kind
        self._kinds, self._count, self._others = [], 0, 0
        self._main_at = self._clock()

    def _add(self, kind: str) -> None:
        self._kinds.append(kind)
        was_in_row, self._was_in_row = self._was_in_row, self._in_row()
        if self._main is None or kind == self._main:
            self._count += 1
            self._main_at = self._clock()
        else:
            self._others += not (was_in_row and self._was_in_row)

    def _has_enough(self, wanted: int) -> bool:
        return self._count >= wanted or self._has_given_up(wanted)

    def _has_given_up(self, wanted: int) -> bool:
        """Whether the main kind has been waited for long enough."""
        is_missed = self.window is Window.PROFILED and not self._count
        most = (_MOST_WITHOUT_ONE if is_missed else _MOST_OTHERS) * (wanted + 1)
        if self._count >= wanted or len(self._kinds) < most:
            return False
        row_ns = self._clock() - self._main_at
        is_long = row_ns > max(_LONG_ROW_NS, self._main_at - self._began)
        return (self._was_in_row and is_long) or self._count + self._others >= most

    def _end(self) -> None:
        self.window = Window.DONE
        self._on_window(self.window, self.steps, self.main_kind)
        self._on_done()


def main_kind(samples: Sequence[Sample]) -> str | None:
    """The kind with most time, by its median step: one that was compiled does not weigh more.

    A kind that was hardly seen is not one to measure: those seen thrice come first, then twice.
    """
    times: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        times[sample.kind].append(sample.ns)
    if not times:
        return None
    often = min(3, max(map(len, times.values())))
    seen = [kind for kind in times if len(times[kind]) >= often]
    return max(seen, key=lambda kind: len(times[kind]) * statistics.median_low(times[kind]))
