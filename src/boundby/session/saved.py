"""What `boundby run --out` saves of a run, to be analysed again without the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from boundby.diagnosis import Timer
from boundby.hardware import cache
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import SCHEMA, Machine, Record, store
from boundby.model.observation import Observation
from boundby.model.observation_file import FILE_NAME, write_observation

DIAGNOSIS, TRACE = "diagnosis.json", "trace.json"
_MACHINE, _OPERATORS = "machine.json", "operators.json"


class OperatorTimes(Record, frozen=True, kw_only=True):
    """Single operators that were benchmarked for the diagnosis, in ns."""

    schema: int = SCHEMA
    times: list[tuple[OpBenchmark, float]] = []


class RecordingTimer:
    """A timer that records what it measured."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self.times: dict[OpBenchmark, float] = {}

    def __call__(self, benchmarks: Sequence[OpBenchmark]) -> dict[OpBenchmark, float]:
        times = self._timer(benchmarks)
        self.times.update(times)
        return times


def save(
    folder: Path, observation: Observation, machine: Machine, timer: RecordingTimer | None
) -> None:
    """Save the observation, with the machine and the operators' times beside it."""
    write_observation(observation, folder / FILE_NAME)
    store.write(machine, folder / _MACHINE)
    if timer is not None:
        times = OperatorTimes(times=list(timer.times.items()))
        store.write(times, folder / _OPERATORS)


def saved_machine(path: Path) -> Machine | None:
    """The machine that was saved with an observation."""
    file = path.parent / _MACHINE
    return cache.read(file) if file.exists() else None


def saved_timer(path: Path) -> Timer | None:
    """The operators' times that were saved with an observation, as a timer."""
    file = path.parent / _OPERATORS
    if not file.exists():
        return None
    saved_times = dict(store.read(file, OperatorTimes, "list of operator times").times)

    def timer(benchmarks: Sequence[OpBenchmark]) -> dict[OpBenchmark, float]:
        return {
            benchmark: saved_times[benchmark]
            for benchmark in benchmarks
            if benchmark in saved_times
        }

    return timer


def holds_observation(folder: Path) -> bool:
    """Whether a folder, or one of its ranks' folders, holds an observation."""
    return (folder / FILE_NAME).exists() or any(folder.glob(f"rank*/{FILE_NAME}"))
