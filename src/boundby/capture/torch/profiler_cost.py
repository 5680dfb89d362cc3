"""The profiler's cost for Python: per call, per call of a C function, and for other code.

The same three small loops run before the profiler starts and under it, some microseconds each. The
cost of an operator is not measured: it is the rest of a profiled step's delay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

_TURNS = 200  # calls a sample
_TRIES = 5  # the fastest of them counts


class MeasuredCallCost(NamedTuple):
    """The cost of profiled calls: the fields of the model's `ProfilerCallCost`, which is not loaded
    before the script is."""

    function_ns: float
    builtin_ns: float
    of_python: float


def _loop() -> int:
    total = 0
    for turn in range(_TURNS):
        total += turn
    return total


def _loop_calling_c(called: Callable[[int], object] = abs) -> int:
    total = 0
    for turn in range(_TURNS):
        called(turn)
        total += turn
    return total


def _called(turn: int) -> None:
    pass


def _loop_calling() -> int:
    total = 0
    for turn in range(_TURNS):
        _called(turn)
        total += turn
    return total


def take_times() -> tuple[float, float, float]:
    """The time of an iteration of each loop, in ns: without calls, calling C, calling Python."""
    loops = (_loop, _loop_calling_c, _loop_calling)
    best = [float("inf")] * len(loops)
    for _ in range(_TRIES):
        for number, loop in enumerate(loops):
            began = time.perf_counter_ns()
            loop()
            best[number] = min(best[number], (time.perf_counter_ns() - began) / _TURNS)
    return best[0], best[1], best[2]


def measured_call_cost(
    before: tuple[float, float, float], under: tuple[float, float, float]
) -> MeasuredCallCost:
    """The cost from the loops' times without and with the profiler."""
    slower = max(0.0, 1 - before[0] / under[0])
    in_c, in_python = (
        max(0.0, (under[number] - under[0]) - (before[number] - before[0])) for number in (1, 2)
    )
    return MeasuredCallCost(function_ns=in_python, builtin_ns=in_c, of_python=slower)
