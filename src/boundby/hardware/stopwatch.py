"""Timing one piece of work: warmed up, repeated, a median with its spread.

On CUDA, device events do the timing. Work shorter than a launch is captured into a graph of many
copies, so that the figure is the device's and not the host's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from boundby.model import Record

Workload = Callable[[], object]

FEWEST_SAMPLES = 5  # for a median and its spread
# Work shorter than this is dominated by its launch from Python (about 10 us per operator).
_SHORT_NS = 200_000
_GRAPH_NS = 1_000_000  # time of one replay: long against its launch
_CPU_BATCH_NS = 500_000  # time of one sample: long against a reading of the clock
_MOST_COPIES = 500  # so that the capture stays short
# The device is kept busy this long while the host enqueues the measured work: otherwise the
# launches (about 10 us each) would lie between the two events. If the host is slower, it gets twice
# as long, repeatedly, up to about 10 ms.
_HEAD_START_CYCLES = 100_000
_LONGEST_HEAD_START_CYCLES = 25_600_000  # 256 times the first


class Timing(Record, frozen=True, kw_only=True):
    """Time of one call in ns: the median, and the range of the middle half of the samples."""

    ns: float
    spread: float
    samples: int

    @classmethod
    def of(cls, samples: list[float]) -> Timing:
        middle = statistics.median(samples)
        if len(samples) < 2:
            return cls(ns=middle, spread=0.0, samples=len(samples))
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(ns=middle, spread=(high - low) / middle if middle else 0.0, samples=len(samples))

    def for_each(self, count: int) -> Timing:
        """The time of one of `count` equal parts that were timed together."""
        return Timing(ns=self.ns / count, spread=self.spread, samples=self.samples)


class Stopwatch(Protocol):
    def time(
        self, work: Workload, *, seconds: float, graphed: bool = False, fewest: int = FEWEST_SAMPLES
    ) -> Timing:
        """The device time of one call of `work`, spending about `seconds` on it.

        `graphed`: it issues more than one kernel, so it is always captured, however long it takes.
        `fewest`: the minimum number of samples, however long they take.
        """
        ...

    def sync(self) -> None:
        """Wait until the device is idle."""
        ...


def time_host(work: Workload, *, calls: int, rounds: int, settle: Workload | None = None) -> Timing:
    """Host time of one call: `calls` of them between two clock readings, `rounds` times over."""
    (timing,) = time_host_in_turns([(work, calls)], rounds=rounds, settle=settle)
    return timing


def time_host_in_turns(
    workloads: Sequence[tuple[Workload, int]], *, rounds: int, settle: Workload | None = None
) -> list[Timing]:
    """Time each function as `time_host` does, in alternating rounds.

    If the host's speed changes, all functions see the same changes and stay comparable.
    """
    for work, _ in workloads:
        work()
    samples: list[list[float]] = [[] for _ in workloads]
    for _ in range(rounds):
        for (work, calls), workload_samples in zip(workloads, samples, strict=True):
            if settle:
                settle()
            began = time.perf_counter_ns()
            for _ in range(calls):
                work()
            workload_samples.append((time.perf_counter_ns() - began) / calls)
    return [Timing.of(workload_samples) for workload_samples in samples]


class CpuStopwatch:
    def time(
        self, work: Workload, *, seconds: float, graphed: bool = False, fewest: int = FEWEST_SAMPLES
    ) -> Timing:
        work()
        began = time.perf_counter_ns()
        work()
        once = max(1, time.perf_counter_ns() - began)
        calls = max(1, min(10_000, round(_CPU_BATCH_NS / once)))
        samples: list[float] = [once] if calls == 1 else []
        deadline = began + seconds * 1e9
        while len(samples) < fewest or time.perf_counter_ns() < deadline:
            start = time.perf_counter_ns()
            for _ in range(calls):
                work()
            samples.append((time.perf_counter_ns() - start) / calls)
        return Timing.of(samples)

    def sync(self) -> None:
        return


class CudaStopwatch:
    def __init__(self, index: int) -> None:
        import torch

        self._torch = torch
        self._index = index

    def sync(self) -> None:
        self._torch.cuda.synchronize(self._index)

    def time(
        self, work: Workload, *, seconds: float, graphed: bool = False, fewest: int = FEWEST_SAMPLES
    ) -> Timing:
        for _ in range(3):
            work()
        self.sync()
        once, head_start = self._head_start(work)
        run, copies = work, 1
        if graphed or once < _SHORT_NS:
            copies = max(1, min(_MOST_COPIES, round(_GRAPH_NS / max(once, 1_000))))
            run = self._graph(work, copies)
            run()
            self.sync()
        samples: list[float] = []
        late: list[float] = []
        deadline = time.perf_counter() + seconds
        while len(samples) + len(late) < fewest or time.perf_counter() < deadline:
            elapsed, in_time = self._between_events(run, head_start)
            (samples if in_time else late).append(elapsed / copies)
        return Timing.of(samples or late)

    def _head_start(self, work: Workload) -> tuple[float, int]:
        """The time of one call on the device, and the cycles that give the host enough head start.

        Work that waits for the device cannot be enqueued ahead, however long the head start.
        """
        cycles = _HEAD_START_CYCLES
        while cycles <= _LONGEST_HEAD_START_CYCLES:
            elapsed, in_time = self._between_events(work, cycles)
            if in_time:
                return elapsed, 2 * cycles
            cycles *= 2
        return elapsed, _HEAD_START_CYCLES

    def _between_events(self, work: Workload, head_start: int) -> tuple[float, bool]:
        """The device time, and whether all of it was enqueued before the device started."""
        start = self._torch.cuda.Event(enable_timing=True)
        end = self._torch.cuda.Event(enable_timing=True)
        self._torch.cuda._sleep(head_start)
        start.record()
        work()
        end.record()
        in_time = not start.query()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e6, in_time

    def _graph(self, work: Workload, copies: int) -> Workload:
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph):
            for _ in range(copies):
                work()
        replay: Workload = graph.replay
        return replay


def stopwatch_for(kind: str, index: int) -> Stopwatch:
    return CpuStopwatch() if kind == "cpu" else CudaStopwatch(index)
