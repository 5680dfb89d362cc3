"""Collectives run while no kernel runs, or with messages too small for the link.

What it looks for
    Collectives that overlap with no kernel of this rank, and sequences of collectives so small that
    latency is most of their time.

Why it costs time
    A collective has a latency of some tens of microseconds before its first byte: a hundred small
    messages pay it a hundred times, one large message once. Communication that overlaps with
    computation costs no step time; communication that the device waits for does.

What to change
    Use larger buckets (`DistributedDataParallel(model, bucket_cap_mb=100,
    gradient_as_bucket_view=True)`). Under FSDP wrap fewer modules and prefetch earlier. With
    gradient accumulation put `with model.no_sync():` around all backward passes except the last.

When it does not help
    When the time in a collective is spent waiting for a slow rank: the table of ranks shows which
    rank waits for which. Fix the slow rank. When the next operator needs the result immediately, as
    after an all-to-all, nothing can overlap with it.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from boundby import ops as costs
from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import Cost, DeviceKind
from boundby.model.assumptions.device import COLLECTIVE_LATENCY_NS, LINK_SHARE
from boundby.model.assumptions.savings import HIDDEN_TRANSFER_SHARE
from boundby.step.inference import is_inference
from boundby.step.model import Edit, StepView

_KIND = re.compile(r"^(?:nccl|gloo|xccl|c10d|_c10d_functional)::?_?(?P<kind>\w+?)_?$")
# Collectives whose result the next operator needs at once.
_BLOCKING = re.compile(r"all_?to_?all|send|recv|broadcast|barrier")
_REDUCING = re.compile(r"all_?reduce")
_GATHERING = re.compile(r"all_?gather")
_SCATTERING = re.compile(r"reduce_?scatter")

_OF_INFERENCE = (
    "# split the model over fewer devices, or use all-reduce kernels made for small messages"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collective:
    op: int
    kind: str
    exposed_ns: float
    transfer_ns: float | None  # latency, and bytes over the link; None if the size is unknown


def detect(step: StepView) -> Detection | None:
    latency = _latency(step)
    found = list(_collectives(step, latency))
    exposed = sum(one.exposed_ns for one in found)
    if not exposed:
        return None
    merged = _merged(found, latency)
    computing = sum(
        record.exposed_ns for record in step.op_records if record.op_class != "communication"
    )
    hideable = [one for one in found if not _BLOCKING.search(one.kind)]
    room = min(1.0, computing / max(1.0, sum(one.exposed_ns for one in hideable)))

    def hidden(share: float, *, all_of_it: bool) -> dict[int, float]:
        op_ns = {index: step.op_records[index].ns - ns for index, ns in merged.items()}
        for one in hideable:
            most = one.exposed_ns if all_of_it else min(one.exposed_ns, one.transfer_ns or 0.0)
            now = op_ns.get(one.op, step.op_records[one.op].ns)
            op_ns[one.op] = max(0.0, now - share * room * most)
        return op_ns

    worst = {index: step.op_records[index].ns - ns for index, ns in merged.items()}
    return Detection(
        low=Edit.set_time(worst),
        expected=Edit.set_time(hidden(HIDDEN_TRANSFER_SHARE.value, all_of_it=False)),
        high=Edit.set_time(hidden(1.0, all_of_it=True)),
        where=step.lines(step.op_records[one.op] for one in found)[:2],
        change=_OF_INFERENCE if is_inference(step) else _change(hideable or found),
        assumes="the time goes into the transfer, not into waiting for a rank that is late",
    )


def _collectives(step: StepView, latency: float) -> Iterator[_Collective]:
    device = step.timeline.device
    link = step.machine.rate("network.link")
    for event in np.flatnonzero(device.kind == DeviceKind.COLLECTIVE):
        index = step.record_of(int(event))
        record = step.op_records[index]
        kind, size, ranks = _message(step, index)
        transfer = None
        if size is not None and link:
            crossing = _crossing(kind, size, ranks)
            transfer = min(record.ns, latency + crossing / (link * LINK_SHARE.value) * 1e9)
        yield _Collective(op=index, kind=kind, exposed_ns=record.exposed_ns, transfer_ns=transfer)


def _crossing(kind: str, size: float, ranks: float) -> float:
    """The bytes that cross this rank's link, from the bytes that it gives: of a gathered tensor it
    gives one part and receives the others."""
    if _GATHERING.search(kind):
        return size * (ranks - 1)
    rounds = 2 if _REDUCING.search(kind) else 1
    return rounds * size * (ranks - 1) / ranks


def _message(step: StepView, index: int) -> tuple[str, float | None, float]:
    """The kind of collective, from the ranges around its launch; the bytes it sends; and the number
    of ranks, from its sizes if possible, otherwise all ranks."""
    timeline, record = step.timeline, step.op_records[index]
    size = record.cost.bytes_read if record.cost is not None else None
    ranks = float(timeline.world or 2)
    kind, row = "", record.row
    while row >= 0:
        name = timeline.names[timeline.host.name[row]]
        named = _KIND.match(name)
        kind = kind or (named["kind"] if named else "")
        call = int(timeline.host.call[row])
        if call >= 0 and costs.op_class(name) == "communication":
            cost = costs.cost(timeline.calls[call])
            if cost is not None:
                size = size or cost.bytes_read or None
                ranks = _group(kind, cost) or ranks
        row = int(timeline.host.parent[row])
    return kind or record.name, size, ranks


def _group(kind: str, cost: Cost) -> float | None:
    """How many ranks take part: the number of parts in the whole, if both sizes are recorded."""
    part, whole = sorted((cost.bytes_read, cost.bytes_written))
    parted = _GATHERING.search(kind) or _SCATTERING.search(kind)
    return whole / part if parted and part else None


def _latency(step: StepView) -> float:
    """The shortest collective of the step, if that is shorter than usual."""
    shortest = [record.ns for record in step.op_records if record.bound == "network" and record.ns]
    return min([COLLECTIVE_LATENCY_NS.value, *shortest])


def _merged(found: list[_Collective], latency: float) -> dict[int, float]:
    """Latency saved by merging small collectives of one kind that follow each other, by
    operation."""
    saved = {}
    for before, one in itertools.pairwise(found):
        small = one.transfer_ns is not None and one.transfer_ns < 2 * latency
        if small and before.kind == one.kind:
            saved[one.op] = min(latency, one.exposed_ns)
    return saved


def _change(found: list[_Collective]) -> str:
    main = max(found, key=lambda one: one.exposed_ns)
    if re.search(r"reduce_scatter|all_?gather", main.kind):
        return "fully_shard(model)  # wrap larger pieces, prefetch the next while this one computes"
    if _BLOCKING.search(main.kind):
        return f"# exchange earlier, or split the batch: {main.kind} of one half during the other"
    return "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)"


FAULT = Fault(
    id="exposed-collectives",
    title="Communication not overlapped with computation",
    kind="tuning",
    group="bandwidth",
    devices=("cuda",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
)
