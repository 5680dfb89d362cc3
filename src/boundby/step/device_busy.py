"""When the device was busy, and with what, counting every instant once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model import DeviceKind, Ints, Timeline

Floats = npt.NDArray[np.float64]
Priorities = npt.NDArray[np.int8]

# The kind that an instant counts as if several things run in it.
CONTRACTION, KERNEL, COLLECTIVE, COPY = range(4)


def priorities(timeline: Timeline, is_contraction: npt.NDArray[np.bool_]) -> Priorities:
    kind = timeline.device.kind
    result = np.full(len(timeline.device), COPY, np.int8)
    result[kind == DeviceKind.COLLECTIVE] = COLLECTIVE
    result[kind == DeviceKind.KERNEL] = KERNEL
    result[is_contraction & (kind == DeviceKind.KERNEL)] = CONTRACTION
    return result


def exposed(starts: Ints, durations: Ints, priority: Priorities) -> Floats:
    """For each event, the time in which no event of higher priority, or earlier, was running.

    The sum is the length of the union. Most steps run one kernel at a time: those need one pass.
    """
    ends = starts + durations
    order = np.argsort(starts, kind="stable")
    latest = np.maximum.accumulate(ends[order])
    if len(starts) < 2 or np.all(starts[order][1:] >= latest[:-1]):
        return durations.astype(np.float64)
    edges = np.unique(np.concatenate([starts, ends]))
    lengths = np.diff(edges).astype(np.float64)
    owner = np.full(len(lengths), -1, np.int64)
    first = np.searchsorted(edges, starts)
    last = np.searchsorted(edges, ends)
    # Painted from low to high priority, and later events before earlier ones.
    for event in np.lexsort((-starts, -priority)):
        owner[first[event] : last[event]] = event
    painted = owner >= 0
    shown: Floats = np.zeros(len(starts))
    np.add.at(shown, owner[painted], lengths[painted])
    return shown
