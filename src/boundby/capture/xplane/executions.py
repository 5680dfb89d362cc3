"""Assigns device rows to executions of programs, and divides executions into steps."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.nesting import matching
from boundby.capture.kineto.steps import Step
from boundby.capture.xplane.host import EXECUTION
from boundby.capture.xplane.planes import Plane
from boundby.capture.xplane.rows import NONE, DeviceRows, HostRows, Names
from boundby.model import DeviceKind
from boundby.model.timeline import Ints

StepsFrom = Literal["markers", "repeating program", "whole window"]

_ORDINAL = re.compile(r"^\[(\d+)\] ")
# The share of patterns between executions of the largest program that must repeat.
_ALIKE = 0.9
_LONGEST_PERIOD = 4096  # time limit
_WHOLE = 0.7  # assumed: a step shorter than this share of the shortest other one was cut off


@dataclass(slots=True, frozen=True)
class Execution:
    """One run of a program on a device."""

    module: int  # index in the table of names
    program: int
    called_ns: int  # when the host began to issue it; its own start if unknown
    rows: npt.NDArray[np.intp]


def launches_of(device: DeviceRows, host: HostRows) -> npt.NDArray[np.int32]:
    """For each device row the host row that launched it; -1 if unknown."""
    return matching(host.correlation, device.correlation)


def find_executions(
    device: DeviceRows, host: HostRows, launch: npt.NDArray[np.int32], names: Names, ordinal: int
) -> list[Execution]:
    """The executions in order of time; device rows without a program are in none."""
    keys = _keys(device, host, launch, names, ordinal)
    by_key: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        if key is not None:
            by_key[key].append(row)
    called = np.where(launch >= 0, np.append(host.start, 0)[launch], device.start)
    found = []
    for (_, program, module), rows in by_key.items():
        columns = np.array(rows, np.intp)
        found.append(Execution(module, program, int(called[columns].min()), columns))
    return sorted(found, key=lambda one: one.called_ns)


def _keys(
    device: DeviceRows, host: HostRows, launch: npt.NDArray[np.int32], names: Names, ordinal: int
) -> list[tuple[int, int, int] | None]:
    """A key for each device row that is equal within one execution: by the profiler's number, the
    host's call, or a new beginning."""
    spans = _spans(host, names, ordinal)
    starts = [start for start, _ in spans]
    keys: list[tuple[int, int, int] | None] = []
    turn, first = 0, NONE
    seen: set[int] = set()
    before = (NONE, NONE)
    for row in range(len(device)):
        program, module = int(device.program[row]), int(device.module[row])
        if module == NONE and program == NONE:
            keys.append(None)
            continue
        if device.run[row] != NONE:
            keys.append((int(device.run[row]), program, module))
            continue
        at = NONE
        if launch[row] >= 0 and spans:
            time = int(host.start[launch[row]])
            at = bisect_right(starts, time) - 1
            at = at if at >= 0 and time < spans[at][1] else NONE
        if at != NONE:
            keys.append((at, program, module))
            continue
        # No call is known: another program begins a new one, and so does its first operation.
        operation = int(device.operation[row])
        if (program, module) != before or (operation in seen and operation == first):
            turn -= 1
            seen, before, first = set(), (program, module), operation
        seen.add(operation)
        keys.append((turn - 1, program, module))
    return keys


def _spans(host: HostRows, names: Names, ordinal: int) -> list[tuple[int, int]]:
    """When the host issued a program to this device."""
    is_execution = np.array([bool(EXECUTION.match(name)) for name in names.table] or [False])
    spans = []
    ends = host.end
    for row in np.flatnonzero(is_execution[host.name]).tolist():
        match = _ORDINAL.match(names.table[host.name[row]])
        if match is None or int(match[1]) == ordinal:
            spans.append((int(host.start[row]), int(ends[row])))
    return sorted(spans)


def find_steps(
    executions: Sequence[Execution],
    device: DeviceRows,
    host: HostRows,
    markers: Sequence[tuple[str, int, int]],
) -> tuple[list[Step], StepsFrom]:
    """The steps, and how they were found."""
    called = _called(executions, device)
    if markers:
        windows: list[tuple[str | None, int, int]] = list(markers)
        steps = charged(windows, device, called)
        if steps:
            return steps, "markers"
    if cuts := _cuts(executions, device):
        last = _last_moment(device, host)
        edges = [*cuts, max(last, cuts[-1] + 1)]
        windows = [(None, a, b) for a, b in pairwise(edges)]
        return _whole(charged(windows, device, called)), "repeating program"
    start = min(_first(device.start), _first(host.start))
    windows = [(None, start, _last_moment(device, host))]
    return charged(windows, device, called), "whole window"


def _whole(steps: list[Step]) -> list[Step]:
    """The steps without the last one, if the profile ended before it did."""
    if len(steps) > 2 and steps[-1].wall_ns < _WHOLE * min(one.wall_ns for one in steps[:-1]):
        return steps[:-1]
    return steps


def _first(starts: Ints) -> int:
    return int(starts.min()) if len(starts) else np.iinfo(np.int64).max


def _last_moment(device: DeviceRows, host: HostRows) -> int:
    """When the last device work ended, or was waited for."""
    ends = [int(rows.end.max()) for rows in (device, host) if len(rows)]
    return (int(device.end.max()) if len(device) else max(ends, default=0)) + 1


def _called(executions: Sequence[Execution], device: DeviceRows) -> Ints:
    """When each row's execution was called; rows of none belong to the one after them."""
    called = device.start.copy()
    for one in executions:
        called[one.rows] = one.called_ns
    return called


def _cuts(executions: Sequence[Execution], device: DeviceRows) -> list[int]:
    """When each step's first execution of the largest program was called.

    Largest: among those that run more than once, the one with most device time. If it runs several
    times per step, the programs between its executions repeat with the steps' period.
    """
    busy: Counter[tuple[int, int]] = Counter()
    runs: Counter[tuple[int, int]] = Counter()
    for one in executions:
        key = (one.program, one.module)
        busy[key] += int(device.duration[one.rows].sum())
        runs[key] += 1
    repeating = [key for key in busy if runs[key] > 1]
    if not repeating:
        return []
    largest = max(repeating, key=lambda key: busy[key])
    at = [i for i, one in enumerate(executions) if (one.program, one.module) == largest]
    patterns: dict[tuple[tuple[int, int], ...], int] = {}
    between = []
    for first, last in pairwise(at):
        pattern = tuple((one.program, one.module) for one in executions[first:last])
        between.append(patterns.setdefault(pattern, len(patterns)))
    period = _period(between)
    return [executions[index].called_ns for index in at[::period]]


def _period(tokens: Sequence[int]) -> int:
    """The shortest period with which nearly all tokens repeat; 1 if none does."""
    values = np.array(tokens)
    for period in range(1, min(len(values) // 2, _LONGEST_PERIOD) + 1):
        if float(np.mean(values[period:] == values[:-period])) >= _ALIKE:
            return period
    return 1


def charged(
    windows: Sequence[tuple[str | None, int, int]], device: DeviceRows, called: Ints
) -> list[Step]:
    """Steps that neither overlap nor leave gaps: from the end of the device work of the previous
    one to the end of its own."""
    main = np.flatnonzero(device.stream == _main_stream(device))
    by_call = main[np.argsort(called[main], kind="stable")]
    times, ends = called[by_call], device.end[by_call]
    done = np.maximum.accumulate(ends) if len(ends) else ends
    steps = []
    for label, begin, end in windows:
        first, last = np.searchsorted(times, [begin, end])
        if first == last:
            continue
        until = int(ends[first:last].max())
        since = max(begin, int(done[first - 1])) if first > 0 else begin
        # The host's time before and after counts if the device waits for it.
        until = max(until, end) if last < len(times) and int(times[last]) > until else until
        steps.append(
            Step(
                label=label,
                host_start_ns=begin,
                host_end_ns=end,
                start_ns=min(since, until),
                end_ns=until,
            )
        )
    return steps


def _main_stream(device: DeviceRows) -> int:
    streams, number = np.unique(device.stream, return_inverse=True)
    if not len(streams):
        return NONE
    working = np.where(device.kind == DeviceKind.KERNEL, device.duration, 0)
    return int(streams[np.bincount(number, working, len(streams)).argmax()])


def step_markers(planes: Sequence[Plane]) -> list[tuple[str, int, int]]:
    """Steps that the program marked: a `step_num` of an annotation; or a device's Steps line."""
    found: list[tuple[str, int, int]] = []
    for plane in planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        for line in plane.lines:
            for index in range(len(line)):
                if not line.stats[index] or line.duration_ns[index] <= 0:
                    continue
                stats = plane.stats_of(line.stats[index])
                if (number := stats.get("step_num")) is not None:
                    name = plane.event_name(int(line.event[index])).split("#")[0]
                    start = int(line.start_ns[index])
                    found.append((f"{name} {number}", start, start + int(line.duration_ns[index])))
    if found:
        return _apart(sorted(found, key=lambda one: one[1]))
    for plane in planes:
        for line in plane.lines if plane.name.startswith("/device:") else ():
            if line.name == "Steps":
                return _apart(
                    sorted(
                        (
                            (f"step {plane.event_name(int(key))}", int(start), int(start + length))
                            for key, start, length in zip(
                                line.event, line.start_ns, line.duration_ns, strict=True
                            )
                        ),
                        key=lambda one: one[1],
                    )
                )
    return []


def _apart(steps: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Steps that follow each other; one inside another (or listed twice) is left out."""
    kept: list[tuple[str, int, int]] = []
    for one in steps:
        if not kept or one[1] >= kept[-1][2] - 1000:
            kept.append(one)
    return kept
