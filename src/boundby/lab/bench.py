"""The environment of an experiment: a device, its saved machine, timers that return intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from boundby.hardware.device import Device
from boundby.hardware.stopwatch import FEWEST_SAMPLES, Stopwatch, Timing, Workload, stopwatch_for
from boundby.lab.host_speed import HostSpeedSampler
from boundby.model import Machine
from boundby.model.lab import Interval

_WALL_NS = 5e6  # minimum duration of a sample
_ROUNDS = 7  # the median of them counts
_SAMPLES, _FEWEST_CALLS = 5, 2  # samples, and calls in each


@dataclass
class Bench:
    """The device under test. `quick`: smaller sizes and fewer repeats, for a first look."""

    machine: Machine
    device: Device
    quick: bool = False
    tick: Callable[[], None] = lambda: None
    host_speed: HostSpeedSampler = field(default_factory=HostSpeedSampler)
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
        """Run work between two measurements, and sample the host's speed."""
        self.tick()
        self.host_speed.sample()

    def time(
        self, work: Workload, *, seconds: float = 0.2, fewest: int = FEWEST_SAMPLES
    ) -> Interval:
        """Device time of one call, in ns."""
        self.pause()
        seconds = seconds / 4 if self.quick else seconds
        return spread(self.stopwatch.time(work, seconds=seconds, fewest=fewest))

    def fastest(self, workloads: Sequence[Workload], *, seconds: float = 0.2) -> list[Interval]:
        """Device time of each in ns: the fastest of several samples, taken in turns.

        Roofs are the machine's limits. Other programs only add time, so the fastest sample is
        nearest to the limit, and the median is the other end of its interval.
        """
        count = 2 if self.quick else _SAMPLES
        samples = [
            [self.time(work, seconds=seconds / count, fewest=_FEWEST_CALLS) for work in workloads]
            for _ in range(count)
        ]
        intervals = []
        for of_workload in zip(*samples, strict=True):
            ordered = sorted(of_workload, key=lambda each: each.value)
            best, usual = ordered[0], ordered[count // 2]
            high = max(best.high, usual.value)
            intervals.append(Interval(low=best.low, value=best.value, high=high))
        return intervals

    def wall(self, work: Workload, *, rounds: int = _ROUNDS) -> Interval:
        """Time of one call in a script: many calls in a row, then a sync."""
        return self.compare({"": work}, rounds=rounds)[""]

    def compare(
        self, workloads: Mapping[str, Workload], *, rounds: int = _ROUNDS, fastest: bool = False
    ) -> dict[str, Interval]:
        """The same for several, taken in turns, so that disturbances affect all of them.

        `fastest`: for laws about roofs, to which other programs only add time; see `fastest`.
        """
        calls = {name: self._calls(work) for name, work in workloads.items()}
        samples: dict[str, list[float]] = {name: [] for name in workloads}
        for _ in range(rounds):
            for name, work in workloads.items():
                self.host_speed.sample()
                samples[name].append(self._sample(work, calls[name]))
        usual_times = {name: spread(Timing.of(taken)) for name, taken in samples.items()}
        if not fastest:
            return usual_times
        least = {name: min(taken) for name, taken in samples.items()}
        return {
            name: Interval(low=least[name], value=least[name], high=usual.value)
            for name, usual in usual_times.items()
        }

    def _calls(self, work: Workload) -> int:
        """How many calls make a sample long enough for the clock."""
        self.pause()
        for _ in range(2):
            work()
        return max(1, min(2_000, round(_WALL_NS / self._sample(work, 1))))

    def _sample(self, work: Workload, calls: int) -> float:
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
