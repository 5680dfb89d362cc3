"""Where experiments measure: a device, its saved machine, and stopwatches that give intervals."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from boundby.model import Machine
from boundby.model.lab import Interval
from boundby.roofs.device import Device
from boundby.roofs.stopwatch import Stopwatch, Timing, Work, stopwatch_for

_WALL_NS = 5e6
_ROUNDS = 7


@dataclass
class Bench:
    """The device under test. `quick`: smaller sizes and fewer repeats, for a first look."""

    machine: Machine
    device: Device
    quick: bool = False
    tick: Callable[[], None] = lambda: None
    stopwatch: Stopwatch = field(init=False)

    def __post_init__(self) -> None:
        self.stopwatch = stopwatch_for(self.device.kind, self.device.index)

    @property
    def target(self) -> str:
        return self.device.target

    @property
    def cuda(self) -> bool:
        return self.device.kind == "cuda"

    def time(self, work: Work, *, seconds: float = 0.2) -> Interval:
        """Device time of one call, in ns."""
        self.tick()
        return spread(self.stopwatch.time(work, seconds=seconds / 4 if self.quick else seconds))

    def wall(self, work: Work, *, rounds: int = _ROUNDS) -> Interval:
        """Time of one call as a script sees it: many calls in a row, then a wait for the device."""
        self.tick()
        for _ in range(2):
            work()
        self.stopwatch.sync()
        began = time.perf_counter_ns()
        work()
        self.stopwatch.sync()
        calls = max(1, min(2_000, round(_WALL_NS / (time.perf_counter_ns() - began))))
        samples = []
        for _ in range(rounds):
            self.stopwatch.sync()
            began = time.perf_counter_ns()
            for _ in range(calls):
                work()
            self.stopwatch.sync()
            samples.append((time.perf_counter_ns() - began) / calls)
        return spread(Timing.of(samples))


def spread(timing: Timing) -> Interval:
    """The median and the middle half of the samples around it."""
    half = timing.ns * timing.spread / 2
    return Interval(
        low=max(timing.ns - half, timing.ns / 2), value=timing.ns, high=timing.ns + half
    )
