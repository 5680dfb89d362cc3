"""A run's windows on a clock that the test moves, with a device and a profiler that do nothing."""

import itertools
from collections.abc import Callable

from boundby.capture.process.instruments import Observer
from boundby.capture.process.plan import Plan
from boundby.capture.process.windows import Window, Windows

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class FakeDevice:
    """Marks are times; work that was queued is done when waited for."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.queued = 0
        self.syncs = 0

    def mark(self) -> int:
        return self.clock.now

    def between(self, marks: list[int]) -> list[float]:
        return [float(later - earlier) for earlier, later in itertools.pairwise(marks)]

    def sync(self) -> None:
        self.syncs += 1
        self.clock.now += self.queued
        self.queued = 0


class FakeProfiler:
    def __init__(self, can_start: bool = True, most_late_ms: float = 1e9) -> None:
        self.calls: list[str] = []
        self.marks: list[str] = []
        self.can_start = can_start
        self.most_late_ms = most_late_ms

    def start(self) -> bool:
        self.calls.append("start")
        return self.can_start

    def step(self) -> None:
        self.calls.append("step")

    def mark(self, phase: str) -> None:
        self.marks.append(phase)

    def is_full(self, late_ns: float, steps: int) -> bool:
        return late_ns * (steps + 1) > self.most_late_ms * MS * steps

    def stop(self) -> None:
        self.calls.append("stop")


class Run:
    def __init__(
        self,
        plan: Plan,
        *,
        can_profile: bool = True,
        most_late_ms: float = 1e9,
        observer: Observer | None = None,
        look: Callable[[Window], None] = lambda _: None,
    ) -> None:
        self.clock = Clock()
        self.device = FakeDevice(self.clock)
        self.profiler = FakeProfiler(can_profile, most_late_ms)
        self.done = 0
        self.in_row = False
        self.awaits_ns = 0.0
        self.windows = Windows(
            plan,
            self.device,
            self.profiler,
            self._end,
            self.clock,
            observer=observer,
            look=look,
            awaits_ns=lambda: self.awaits_ns,
            in_row=lambda: self.in_row,
        )

    def _end(self) -> None:
        self.done += 1

    def steps(self, *times_ms: float, kind: str = "train") -> None:
        for time_ms in times_ms:
            self.clock.now += int(time_ms * MS)
            self.windows.step_ended(kind)

    def window(self) -> Window:
        return self.windows.window
