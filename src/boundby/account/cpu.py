"""The work of a step on a CPU, where there are no kernel events: operators are timed themselves.

An operator's overhead is at most what an eager operator costs; profiler cost is taken off per
event. It is known exactly: on a CPU nothing overlaps, so the profiled step is longer than the
clean one by the profiler's cost and nothing else.
"""

from __future__ import annotations

import numpy as np

from boundby import costs
from boundby.account.busy import union
from boundby.account.work import Costs, Work, bound_of
from boundby.model import HostKind, Ints, Machine, Timeline


def cpu_work(timeline: Timeline, machine: Machine, *, wall_ns: float) -> list[Work]:
    """One `Work` per innermost costed operator call, net of overhead and of the profiler."""
    host = timeline.host
    costed = Costs(timeline, machine)
    has_cost = np.array([*costed.is_costed, False])[host.call] & (host.kind == HostKind.OP)
    leaf = has_cost & ~_around_another(host.parent, has_cost)
    per_event = max(0.0, timeline.wall_ns - wall_ns) / max(1, len(host))
    inside = _events_inside(host.parent, leaf)
    overhead = machine.overheads.eager_op_ns or 0.0
    works = []
    for row in np.flatnonzero(leaf):
        name = timeline.names[host.name[row]]
        cost = costed.of_call[host.call[row]]
        assert cost is not None
        net = float(host.duration_ns[row]) - per_event * float(inside[row])
        kernel = max(0.0, net - min(net, overhead))
        works.append(
            Work(
                name=name,
                op_class=costs.op_class(name) or "unknown",
                bound=bound_of(machine, cost, 1),
                ns=kernel,
                exposed_ns=kernel,
                cost=cost,
                floor_ns=machine.floor(cost),
                row=int(row),
                source=int(host.source[row]),
                module=int(host.module[row]),
                phase=int(host.phase[row]),
                call=int(host.call[row]),
            )
        )
    return works + _unknown_work(timeline, has_cost, per_event, overhead)


def data_ns(timeline: Timeline) -> float:
    """Time in which the step waited for its next batch."""
    host = timeline.host
    waiting = host.kind == HostKind.DATA
    begins, ends = union(host.start_ns[waiting], host.duration_ns[waiting])
    return float((ends - begins).sum())


def _around_another(parent: Ints, has_cost: Ints) -> Ints:
    """Rows that have a costed operator somewhere inside them."""
    around = np.zeros(len(parent), np.bool_)
    row = parent[has_cost]
    while True:
        row = np.unique(row[row >= 0])
        row = row[~around[row]]
        if not len(row):
            return around
        around[row] = True
        row = parent[row]


def _events_inside(parent: Ints, leaf: Ints) -> Ints:
    """How many events lie within each leaf, itself included: each cost the profiler its time."""
    owner = np.arange(len(parent))
    while True:
        looking = (owner >= 0) & ~leaf[owner]
        if not looking.any():
            break
        owner[looking] = parent[owner[looking]]
    return np.bincount(owner[owner >= 0], minlength=len(parent))


def _unknown_work(
    timeline: Timeline, has_cost: Ints, per_event: float, overhead: float
) -> list[Work]:
    """Operators without a formula that take longer than any operator's overhead."""
    host = timeline.host
    is_op = host.kind == HostKind.OP
    covered = has_cost | _around_another(host.parent, has_cost) | _within(host.parent, has_cost)
    without = is_op & ~covered
    without &= ~_around_another(host.parent, without)
    works = []
    for row in np.flatnonzero(without):
        name = timeline.names[host.name[row]]
        call = int(host.call[row])
        if costs.op_class(name) is not None and call >= 0:
            continue
        net = float(host.duration_ns[row]) - per_event - overhead
        if net > overhead:
            works.append(
                Work(
                    name=name,
                    op_class="unknown",
                    bound="unknown",
                    ns=net,
                    exposed_ns=net,
                    row=int(row),
                    source=int(host.source[row]),
                    module=int(host.module[row]),
                    phase=int(host.phase[row]),
                    call=call,
                )
            )
    return works


def _within(parent: Ints, has_cost: Ints) -> Ints:
    """Rows inside a costed operator."""
    row = parent.astype(np.int64).copy()
    inside = np.zeros(len(parent), np.bool_)
    for _ in range(200):
        known = row >= 0
        if not known.any():
            break
        inside[known] |= has_cost[row[known]]
        row[known] = parent[row[known]]
    return inside
