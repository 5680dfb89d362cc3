"""The operators of kernels in a replayed graph, from the same kernels outside of it.

A replayed graph has no operator names. But the step ran before it was captured, and parts of it may
still run: a kernel of the same name, on the same grid, launched by its own operator, does the same
work if it also takes the same time (a product's inner dimension is in neither).
"""

from __future__ import annotations

import numpy as np

from boundby.capture.kineto.events import NONE
from boundby.capture.kineto.nesting import Rows, matching, nearest, order, parents
from boundby.capture.kineto.rows import Columns, DeviceRows
from boundby.model import HostKind

# Times of one kernel on one grid, in a graph and outside of it, differ by at most this share.
_ALIKE = 1.33


def calls_of_replayed(columns: Columns, device: DeviceRows, replayed: Rows) -> Rows:
    """For each device row the call that the same kernel did outside a graph; -1 for none."""
    found = np.full(len(device.start), NONE, np.int32)
    if not len(replayed):
        return found
    known = _calls_outside(columns)
    for row in replayed.tolist():
        took = float(device.duration[row])
        alike = {
            call
            for call, usual in known.get((int(device.name[row]), int(device.grid[row])), ())
            if usual / _ALIKE <= took <= usual * _ALIKE
        }
        if len(alike) == 1:
            found[row] = alike.pop()
    return found


def _calls_outside(columns: Columns) -> dict[tuple[int, int], list[tuple[int, float]]]:
    """By kernel and launch shape: the calls it was seen to do, each with its time."""
    host = columns.host.take(order(columns.host))
    around = np.append(nearest(parents(host), (host.kind == HostKind.OP)), NONE)
    device = columns.device
    operator = around[matching(host.correlation, device.correlation)]
    usable = ~device.graph & (operator != NONE)
    # For an operator with several kernels, the work of each is unknown.
    kernels = np.bincount(operator[usable], minlength=len(host.start))
    usable &= np.append(kernels, 0)[operator] == 1
    calls = np.append(host.call, NONE)[operator]
    usable &= calls != NONE
    known: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for row in np.flatnonzero(usable).tolist():
        key = (int(device.name[row]), int(device.grid[row]))
        known.setdefault(key, []).append((int(calls[row]), float(device.duration[row])))
    return known
