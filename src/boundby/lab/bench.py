"""Where experiments measure: a device, its saved machine, and stopwatches that give intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from boundby.lab.pace import Pace
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
    pace: Pace = field(default_factory=Pace)
    stopwatch: Stopwatch = field(init=False)

    def __post_init__(self) -> None:
        self.stopwatch = stopwatch_for(self.device.kind, self.device.index)

    @property
    def target(self) -> str:
        return self.device.target

    @property
    def cuda(self) -> bool:
        return self.device.kind == "cuda"

    def pause(self) -> None:
        """Between two measurements: something is done, and how fast is the host now?"""
        self.tick()
        self.pace.look()

    def time(self, work: Work, *, seconds: float = 0.2) -> Interval:
        """Device time of one call, in ns."""
        self.pause()
        return spread(self.stopwatch.time(work, seconds=seconds / 4 if self.quick else seconds))

    def wall(self, work: Work, *, rounds: int = _ROUNDS) -> Interval:
        """Time of one call as a script sees it: many calls in a row, then a wait for the device."""
        return self.compare({"": work}, rounds=rounds)[""]

    def compare(self, works: Mapping[str, Work], *, rounds: int = _ROUNDS) -> dict[str, Interval]:
        """The same for several, taken in turns: what disturbs one disturbs them all."""
        calls = {name: self._calls(work) for name, work in works.items()}
        samples: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                self.pace.look()
                samples[name].append(self._sample(work, calls[name]))
        return {name: spread(Timing.of(taken)) for name, taken in samples.items()}

    def _calls(self, work: Work) -> int:
        """How many calls make a sample long enough to be read off a clock."""
        self.pause()
        for _ in range(2):
            work()
        return max(1, min(2_000, round(_WALL_NS / self._sample(work, 1))))

    def _sample(self, work: Work, calls: int) -> float:
        self.stopwatch.sync()
        began = time.perf_counter_ns()
        for _ in range(calls):
            work()
        self.stopwatch.sync()
        return max(1, time.perf_counter_ns() - began) / calls


def spread(timing: Timing) -> Interval:
    """The median and the middle half of the samples around it."""
    half = timing.ns * timing.spread / 2
    return Interval(
        low=max(timing.ns - half, timing.ns / 2), value=timing.ns, high=timing.ns + half
    )
