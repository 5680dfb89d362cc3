"""Divides a trace into steps: by markers, as given, or by what repeats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.capture.kineto.batches import batches
from boundby.capture.kineto.events import NONE, OPTIMIZER_STEP, STEP_MARKER
from boundby.capture.kineto.generation import passes
from boundby.capture.kineto.names import clean, module_of
from boundby.capture.kineto.nesting import matching
from boundby.capture.kineto.origins import named
from boundby.capture.kineto.period import find_period
from boundby.capture.kineto.rows import Columns, DeviceRows, Window
from boundby.model import DeviceKind, HostKind
from boundby.model.record import Record
from boundby.model.timeline import Ints

StepsFrom = Literal[
    "markers", "given", "batches", "optimizer", "passes", "launch pattern", "whole window"
]

# A launch into an idle device starts within tens of microseconds; one that waits this long while
# nothing else is seen to run waits for work from before the trace.
_UNSEEN_WORK_NS = 2_000_000
_MOST_OPTIMIZERS = 4  # assumed: programs with more optimizers in a step are not divided by them
BEFORE_TRACE = -(2**62)  # definition: earlier than every timestamp


class Step(Record, frozen=True, kw_only=True):
    """One step: the host's interval, and the interval that counts as its time.

    A host that runs ahead ends its step before the device does. Device work belongs to the step
    that launched it. A step's time runs from the end of the device work before it to the end of its
    own, on the stream with most work, so that steps neither overlap nor leave gaps.
    """

    label: str | None
    host_start_ns: int
    host_end_ns: int
    start_ns: int
    end_ns: int

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def series(self) -> str:
        """The label without the number of the step: the profiler's are "ProfilerStep#3"."""
        return (self.label or "").partition("#")[0]


def find_steps(columns: Columns) -> tuple[list[Step], StepsFrom]:
    """The steps of a file, and how they were found."""
    launches = find_launches(columns)
    if markers := marked(columns):
        return charge(columns, launches, markers), "markers"
    if served := batches(columns):
        return charge(columns, launches, served), "batches"
    if cycles := _optimizer_cycles(columns, launches.called):
        return charge(columns, launches, cycles), "optimizer"
    whole = _before_stop(columns, launches.called)
    if generated := passes(columns, whole.end_ns):
        return charge(columns, launches, generated), "passes"
    if repeats := _repeats(columns, launches.called):
        return charge(columns, launches, repeats), "launch pattern"
    return charge(columns, launches, [(None, whole)]), "whole window"


def given_steps(columns: Columns, windows: Sequence[tuple[int, int]]) -> list[Step]:
    launches = find_launches(columns)
    return charge(columns, launches, [(None, Window(*window)) for window in windows])


class Launches(NamedTuple):
    """When the host called for each device row, and when that call returned."""

    called: Ints
    returned: Ints


def find_launches(columns: Columns) -> Launches:
    """The launch times; if the call is unknown, the row's own start.

    Work launched before the trace began, which ran into it, gets a time before all others and so
    belongs to no step.
    """
    host, device = columns.host, columns.device
    calls = np.flatnonzero(host.correlation > 0)
    if not len(calls):
        return Launches(device.start, device.start)
    numbers = host.correlation[calls]
    found = matching(numbers, device.correlation)
    row, unknown = calls[found], found == NONE
    called = np.where(unknown, device.start, host.start[row])
    # The driver numbers its calls in order.
    earlier = unknown & (device.correlation > 0) & (device.correlation < numbers.min())
    called[earlier] = BEFORE_TRACE
    return Launches(called, np.where(unknown, device.start, host.end[row]))


def extent(columns: Columns) -> Window:
    """The window from the first event to the last, on host or device."""
    starts = [rows.start.min() for rows in (columns.host, columns.device) if len(rows.start)]
    ends = [rows.end.max() for rows in (columns.host, columns.device) if len(rows.start)]
    return Window(int(min(starts)), int(max(ends)) + 1)


def _before_stop(columns: Columns, launched: Ints) -> Window:
    """The whole window without the sync in which the profiler stops: after it nothing runs."""
    window, host = extent(columns), columns.host
    syncs = named(host, columns.names, lambda name: name.endswith("DeviceSynchronize"))
    if not syncs.any():
        return window
    stop = int(host.start[syncs].max())
    later = (host.start > stop) & np.isin(host.kind, [HostKind.OP, HostKind.PYTHON])
    if later.any() or (launched >= stop).any() or stop <= window.start_ns:
        return window
    return Window(window.start_ns, stop)


def marked(columns: Columns) -> list[tuple[str | None, Window]]:
    """The windows of the profiler's own step markers."""
    host = columns.host
    rows = np.flatnonzero(named(host, columns.names, lambda name: name.startswith(STEP_MARKER)))
    found: list[tuple[str | None, Window]] = []
    for row in rows[np.argsort(host.start[rows], kind="stable")].tolist():
        window = Window(int(host.start[row]), int(host.start[row] + host.duration[row]))
        # A marker can appear on several threads, or twice.
        if window.end_ns > window.start_ns and (
            not found or window.start_ns >= found[-1][1].end_ns - 1000
        ):
            found.append((clean(columns.names[host.name[row]]), window))
    return found


def charge(
    columns: Columns, launches: Launches, windows: Sequence[tuple[str | None, Window]]
) -> list[Step]:
    """Give each host window the interval that counts as its time."""
    device = columns.device
    rows = np.flatnonzero(device.stream == _main_stream(device))
    by_launch = rows[np.argsort(launches.called[rows], kind="stable")]
    called, ends = launches.called[by_launch], device.end[by_launch]
    done = np.maximum.accumulate(ends) if len(ends) else ends
    steps: list[Step] = []
    for label, window in windows:
        first, last = np.searchsorted(called, window)
        begin, end = window
        if first < last:
            end = max(end, int(ends[first:last].max()))
        if first > 0:
            begin = max(begin, int(done[first - 1]))
        elif first < last:
            row = by_launch[first]
            waited = int(device.start[row] - launches.returned[row])
            begin = int(device.start[row]) if waited > _UNSEEN_WORK_NS else begin
        steps.append(
            Step(
                label=label,
                host_start_ns=window.start_ns,
                host_end_ns=window.end_ns,
                start_ns=min(begin, end),
                end_ns=end,
            )
        )
    return steps


def _main_stream(device: DeviceRows) -> int:
    """The stream with most kernel time. A prefetched batch, or a checkpoint copied out, on another
    stream belongs to its step but does not lengthen it."""
    streams, number = np.unique(device.stream, return_inverse=True)
    if not len(streams):
        return NONE
    kernels = device.kind == DeviceKind.KERNEL
    busy = np.bincount(number, np.where(kernels, device.duration, 0), len(streams))
    return int(streams[busy.argmax()])


def _optimizer_cycles(columns: Columns, launched: Ints) -> list[tuple[str | None, Window]]:
    """The windows from the end of one optimizer step to the end of the next; several optimizers
    form one cycle."""
    host = columns.host
    rows = np.flatnonzero(named(host, columns.names, lambda name: name.startswith(OPTIMIZER_STEP)))
    if len(rows) < 2:
        return []
    ends = np.sort(host.end[rows])
    edges = np.concatenate([[extent(columns).start_ns], ends])
    work = np.diff(np.searchsorted(np.sort(launched), edges))
    period = _cycle(work[1:])
    cuts = edges[::-1][::period][::-1]
    counts = np.diff(np.searchsorted(np.sort(launched), cuts))
    if len(cuts) > 2 and cuts[0] == edges[0] and counts[0] < 0.8 * np.median(counts[1:]):
        cuts = cuts[1:]  # the trace began inside a step
    return [(None, Window(a, b)) for a, b in pairwise(cuts.tolist())]


def _cycle(work: Ints) -> int:
    for period in range(1, _MOST_OPTIMIZERS + 1):
        if len(work) < 2 * period:
            break
        near = np.abs(work[period:] - work[:-period]) <= 0.05 * np.maximum(work[period:], 20)
        if near.mean() >= 0.5:
            return period
    return 1


def _repeats(columns: Columns, launched: Ints) -> list[tuple[str | None, Window]]:
    """Steps from the repeating order of launches, or of outermost operators without a device."""
    own = launched != BEFORE_TRACE
    times, tokens = launched[own], columns.device.name[own]
    if not len(tokens):
        operators = columns.host.kind == HostKind.OP
        times, tokens = columns.host.start[operators], columns.host.name[operators]
    by_time = np.argsort(times, kind="stable")
    times = times[by_time]
    found = find_period(tokens[by_time])
    if found is None:
        return []
    first, period, repeats = found
    cuts = [int(times[first + index * period]) for index in range(repeats)]
    past = first + repeats * period
    cuts.append(int(times[past]) if past < len(times) else extent(columns).end_ns)
    if _inside_one_call(columns, np.array(cuts[1:-1])):
        return []
    return [(None, Window(a, b)) for a, b in pairwise(cuts) if b > a]


def _inside_one_call(columns: Columns, cuts: npt.NDArray[np.int64]) -> bool:
    """Whether a module or a marked range spans a boundary: then layers repeat, not steps."""
    host = columns.host
    ranges = (host.kind == HostKind.ANNOTATION) | named(host, columns.names, module_of)
    first = np.searchsorted(cuts, host.start[ranges], side="right")
    last = np.searchsorted(cuts, host.end[ranges], side="left")
    return bool((last > first).any())
