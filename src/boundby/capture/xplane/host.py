"""The host's threads: their calls, launches and waits."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from boundby.capture.kineto.nesting import nearest, parents_of
from boundby.capture.marks import OWN_WAIT, STEP_MARK
from boundby.capture.xplane.planes import Plane
from boundby.capture.xplane.rows import NONE, HostRows, Names
from boundby.model import HostKind

_THREADS = "Host Threads/"
# Bookkeeping of the profiler and of the runtime, and functions that only query a type.
_NOISE = re.compile(
    r"^(?:<UNKNOWN>|ThunkExecutor::|BUFFER_FLUSH|Memory(?:Allocation|Deallocation)"
    r"|Wait for (?:donation|usage)"
    r"|ThreadpoolListener::|RecordUsage|end: |\$builtins |.* linkage$)"
)
# Calls in which the host waits for the device.
_SYNC = re.compile(
    r"^(?:np\.asarray\(jax\.Array\)|.*(?:BlockHostUntil|::Await|GetReadyFuture|StreamSynchronize"
    r"|EventSynchronize|DeviceSynchronize|CtxSynchronize)"
    r"|\$api\.py:\d+ (?:try_to_block|block_until_ready)"
    r"|\$array\.py:\d+ (?:block_until_ready|_value|__array__|item))"
)
_CALL = "PjitFunction("
_PYTHON = "$"
_PROFILER = re.compile(r"^\$profiler\.py:\d+ (?:start_trace|stop_trace|stop_and_)")
# A program's thunks, being issued: "[0] GpuExecutable::ExecuteThunks" on device 0.
EXECUTION = re.compile(r"^(?:\[\d+\] )?(?:GpuExecutable::ExecuteThunks|CpuExecutable::Execute)")


class _Row(NamedTuple):
    """A host event; the fields are in the order in which rows are sorted."""

    thread: int
    start: int
    minus_duration: int
    kind: int
    name: int
    correlation: int


def host_rows(planes: Iterable[Plane], names: Names, launches: set[int]) -> HostRows:
    """All relevant host events. `launches`: correlations that device events refer to."""
    columns: list[_Row] = []
    drivers: set[int] = set()
    number = 0
    for plane in planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        kinds: dict[int, tuple[HostKind | None, int]] = {}
        for line in plane.lines:
            number += 1
            if line.name.startswith(_THREADS):
                drivers.add(number)
            events = zip(
                line.event.tolist(),
                line.start_ns.tolist(),
                line.duration_ns.tolist(),
                line.stats,
                strict=True,
            )
            for event, start, duration, numbers in events:
                known = kinds.get(event)
                if known is None:
                    name = plane.event_name(event)
                    known = kinds[event] = (_kind(name), names.number(name))
                kind, name_number = known
                if kind is None or duration <= 0:
                    continue
                correlation = NONE
                if numbers:
                    stats = plane.stats_of(numbers)
                    if "hlo_op" in stats and "correlation_id" not in stats:
                        continue  # an instruction of a CPU program: belongs to the device
                    found = stats.get("correlation_id")
                    if isinstance(found, int) and found in launches:
                        correlation = found
                        kind = HostKind.LAUNCH
                columns.append(_Row(number, start, -duration, int(kind), name_number, correlation))
    return _with_parents(_on_calling_threads(columns, drivers, names))


def _on_calling_threads(columns: list[_Row], drivers: set[int], names: Names) -> list[_Row]:
    """Calls of the driver, which some profilers list separately, on the thread that made them."""
    running = sorted(
        (row.start, row.start - row.minus_duration, row.thread)
        for row in columns
        if EXECUTION.match(names.table[row.name])
    )
    starts = [start for start, *_ in running]
    moved: dict[int, Counter[int]] = defaultdict(Counter)
    for row in columns:
        if row.thread in drivers and row.kind == HostKind.LAUNCH:
            at = bisect_right(starts, row.start) - 1
            inside = at >= 0 and row.start < running[at][1]
            moved[row.thread][running[at][2] if inside else row.thread] += 1
    to = {thread: counts.most_common(1)[0][0] for thread, counts in moved.items()}
    return [row._replace(thread=to.get(row.thread, row.thread)) for row in columns]


def _with_parents(columns: list[_Row]) -> HostRows:
    columns.sort()
    rows = np.array(columns, np.int64).reshape(-1, 6)
    start, duration, thread = rows[:, 1], -rows[:, 2], rows[:, 0]
    parent = parents_of(start, start + duration, thread)
    kind = rows[:, 3].astype(np.int8)
    # A wait counts once, however many functions deep it is; boundby's own waits are left out.
    waits = kind == HostKind.SYNC
    around = np.append(nearest(parent, waits), NONE)[parent]
    kind[waits & (around != NONE)] = HostKind.RUNTIME
    own = np.append(nearest(parent, kind == HostKind.OBSERVER), NONE)[parent] != NONE
    found = HostRows(
        thread=thread,
        start=start,
        duration=duration,
        kind=kind,
        name=rows[:, 4].astype(np.int32),
        correlation=rows[:, 5],
        parent=parent,
    )
    if not own.any():
        return found
    found = found.take(~own)
    return replace(found, parent=parents_of(found.start, found.end, found.thread))


def _kind(name: str) -> HostKind | None:
    if _NOISE.match(name) or not name:
        return None
    if _PROFILER.match(name) or name.split("#")[0] == STEP_MARK:
        return None
    if name == OWN_WAIT:
        return HostKind.OBSERVER
    if _SYNC.match(name):
        return HostKind.SYNC
    if name.startswith(_PYTHON):
        return HostKind.PYTHON
    if name.startswith(_CALL):
        return HostKind.OP
    return HostKind.RUNTIME
