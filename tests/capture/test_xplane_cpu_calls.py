"""Which call ran which program on a CPU."""

from __future__ import annotations

import numpy as np

from boundby.capture.kineto.nesting import parents_of
from boundby.capture.xplane.cpu_calls import with_calls
from boundby.capture.xplane.executions import Execution
from boundby.capture.xplane.rows import NONE, DeviceRows, HostRows, Names
from boundby.model import HostKind


def _host(names: Names, *calls: tuple[int, int, str]) -> HostRows:
    """Calls, with the own waits of boundby named ""."""
    start = np.array([call[0] for call in calls], np.int64)
    duration = np.array([call[1] for call in calls], np.int64)
    thread = np.zeros(len(calls), np.int64)
    return HostRows(
        start=start,
        duration=duration,
        kind=np.array([HostKind.OP if call[2] else HostKind.OBSERVER for call in calls], np.int8),
        name=np.array([names.number(f"PjitFunction({call[2]})") for call in calls], np.int32),
        thread=thread,
        correlation=np.full(len(calls), NONE, np.int64),
        parent=parents_of(start, start + duration, thread),
    )


def _device(names: Names, *runs: tuple[int, int, str]) -> tuple[DeviceRows, list[Execution]]:
    count = len(runs)
    modules = np.array([names.number(run[2]) for run in runs], np.int32)
    none = np.full(count, NONE, np.int64)
    rows = DeviceRows(
        start=np.array([run[0] for run in runs], np.int64),
        duration=np.array([run[1] for run in runs], np.int64),
        kind=np.zeros(count, np.int8),
        name=modules,
        stream=none,
        correlation=none.copy(),
        operation=modules,
        module=modules,
        program=none,
        run=np.arange(count),
        graph=np.zeros(count, np.bool_),
        bytes=none,
    )
    executions = [
        Execution(int(modules[at]), NONE, int(rows.start[at]), np.array([at], np.intp))
        for at in range(count)
    ]
    return rows, executions


def _linked(calls: list[tuple[int, int, str]], runs: list[tuple[int, int, str]]) -> list[int]:
    """For each program that ran, when it was called; -1 where that is not known."""
    names = Names()
    host = _host(names, *calls)
    device, executions = _device(names, *runs)
    device, host = with_calls(device, host, executions, names)
    when = dict(zip(host.correlation.tolist(), host.start.tolist(), strict=True))
    return [when[at] if at != NONE else NONE for at in device.correlation.tolist()]


def test_programs_run_in_the_order_of_their_calls() -> None:
    calls = [(0, 5, "step"), (10, 5, "step"), (20, 5, "other")]
    runs = [(7, 20, "jit_step"), (30, 20, "jit_step"), (60, 5, "jit_other")]
    assert _linked(calls, runs) == [0, 10, 20]


def test_program_inside_a_call_belongs_to_it() -> None:
    calls = [(0, 5, "add"), (10, 5, "add")]
    assert _linked(calls, [(12, 1, "jit_add")]) == [10]


def test_call_without_a_program_does_not_shift_those_of_later_steps() -> None:
    calls = [(0, 5, "step"), (6, 20, ""), (30, 5, "step"), (36, 20, ""), (60, 5, "step")]
    assert _linked(calls, [(37, 10, "jit_step"), (66, 10, "jit_step")]) == [30, 60]


def test_outer_row_of_a_call_is_used() -> None:
    assert _linked([(0, 9, "<lambda>"), (1, 7, "<lambda>")], [(4, 1, "jit__lambda_")]) == [0]


def test_program_without_an_earlier_call_is_unlinked() -> None:
    assert _linked([(10, 5, "step")], [(5, 20, "jit_step")]) == [NONE]
