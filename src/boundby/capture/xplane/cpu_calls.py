"""Which call of the host ran each program on a CPU, if the profiler does not say.

Small programs run inside their call, on its thread. Others run on a thread of the runtime after it
began; programs of one name are assumed to run in the order of their calls, and before the end of
boundby's own next wait.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from boundby.capture.kineto.nesting import nearest
from boundby.capture.xplane.executions import Execution
from boundby.capture.xplane.rows import NONE, DeviceRows, HostRows, Names
from boundby.model import HostKind

_CALL = re.compile(r"^PjitFunction\((?P<name>.*)\)$")
_NO_WORD = re.compile(r"\W")


def with_calls(
    device: DeviceRows, host: HostRows, executions: Sequence[Execution], names: Names
) -> tuple[DeviceRows, HostRows]:
    """The same rows, in which an execution and its call have a common number."""
    calls: dict[str, deque[int]] = defaultdict(deque)
    for row in sorted(_outer_calls(host).tolist(), key=lambda row: int(host.start[row])):
        match = _CALL.match(names.table[host.name[row]])
        if match is not None:
            calls["jit_" + _NO_WORD.sub("_", match["name"])].append(row)
    by_device, by_host = device.correlation.copy(), host.correlation.copy()
    ends = host.end
    # What was called before boundby waited for all work has run by the end of that wait.
    waits = np.sort(ends[host.kind == HostKind.OBSERVER])
    for number, one in enumerate(sorted(executions, key=lambda one: one.called_ns)):
        waiting = calls[names.table[one.module]] if one.module >= 0 else deque()
        waited = int(np.searchsorted(waits, one.called_ns, side="right"))
        while waited and waiting and host.start[waiting[0]] < waits[waited - 1]:
            waiting.popleft()
        if not waiting or host.start[waiting[0]] > one.called_ns:
            continue
        inline = next(
            (row for row in waiting if host.start[row] <= one.called_ns < ends[row]), waiting[0]
        )
        waiting.remove(inline)
        by_host[inline] = number
        by_device[one.rows] = number
    return replace(device, correlation=by_device), replace(host, correlation=by_host)


def _outer_calls(host: HostRows) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The outer calls: the profiler lists each call twice, one inside the other."""
    calls = host.kind == HostKind.OP
    around = np.append(nearest(host.parent, calls), NONE)[host.parent]
    return np.flatnonzero(calls & (around == NONE))
