"""Batches are copied to the device from pageable memory.

What it looks for
    Copies between host and device whose host memory is pageable, as the profiler reports them.

Why it costs time
    The device can only read pinned memory. A copy from pageable memory is staged piece by piece
    through a pinned buffer by the calling thread. It reaches a fraction of the link's bandwidth (18
    of 55 GB/s on an H200), waits for previously queued work, and blocks the host until it is
    complete.

What to change
    Use `DataLoader(..., pin_memory=True)` and `batch.to(device, non_blocking=True)`. For other
    tensors call `tensor.pin_memory()`. To hide the copy completely, issue the copy of the next
    batch on a separate stream while the current one is processed.

When it does not help
    When copies are few and small. When the host reads values back and waits for them: the wait
    remains, however fast the copy is. Pinned memory cannot be swapped out, and pinning a new buffer
    for every batch costs more than it saves.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.fixes import loaders
from boundby.model import DeviceKind, Ints
from boundby.model.assumptions.device import COPY_SHARE_MEASURED, COPY_SHARE_PRINTED
from boundby.model.assumptions.program_savings import PAGEABLE_COPY_SHARE
from boundby.step.inference import is_inference
from boundby.step.model import Edit, StepView
from boundby.step.simulator import Wait

_LINKS = {DeviceKind.COPY_H2D: "host_link.h2d", DeviceKind.COPY_D2H: "host_link.d2h"}
# Reading a value back is a sync with a few bytes, not a slow copy.
_SMALLEST_TO_HOST = 1 << 20
_LEAST_SHARE = 0.01  # of the step: as for any finding


def detect(step: StepView) -> Detection | None:
    copies = _copies(step)
    if not copies:
        return None
    pinned = {op: _pinned_ns(step, kind, op) for op, kind in copies.items()}
    known = {op: ns for op, ns in pinned.items() if ns is not None}
    to_device = [op for op, kind in copies.items() if kind is DeviceKind.COPY_H2D]
    unwaited = Edit.drop_waits(_waits(step, to_device))
    slower = {
        op: min(step.op_records[op].ns, ns / PAGEABLE_COPY_SHARE.value) for op, ns in known.items()
    }
    hidden = known | dict.fromkeys(to_device, 0.0)
    return Detection(
        low=Edit.set_time(slower),
        expected=Edit.set_time(known) + unwaited,
        high=Edit.set_time(hidden) + unwaited,
        where=step.lines(step.op_records[op] for op in copies)[:3],
        change="batch = batch.pin_memory().to(device, non_blocking=True)"
        if is_inference(step)
        else "DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
        assumes="batches can be made in pinned memory, and no code relies on a blocking copy",
    )


def _copies(step: StepView) -> dict[int, DeviceKind]:
    """The operations that are pageable copies, with their directions."""
    device = step.timeline.device
    pageable = np.array(["Pageable" in name for name in step.timeline.names] or [False])
    found: dict[int, DeviceKind] = {}
    for event in np.flatnonzero(pageable[device.name]):
        kind = DeviceKind(int(device.kind[event]))
        large = device.bytes[event] >= _SMALLEST_TO_HOST
        if kind is DeviceKind.COPY_H2D or (kind is DeviceKind.COPY_D2H and large):
            found[step.record_of(int(event))] = kind
    return found


def _pinned_ns(step: StepView, kind: DeviceKind, index: int) -> float | None:
    """The copy's time from pinned memory; None if the link's rate is unknown."""
    record = step.op_records[index]
    roof = step.machine.roof(_LINKS[kind])
    if roof is None or record.cost is None:
        return None
    reached = roof.value * (
        COPY_SHARE_MEASURED.value if roof.source == "measured" else COPY_SHARE_PRINTED.value
    )
    return min(record.ns, record.cost.bytes / reached * 1e9)


def _waits(step: StepView, copies: list[int]) -> Ints:
    """Waits inside the operators that copy: the call's own, and the sync after it.

    None if the profiled step hardly waited there: a simulation that does is wrong.
    """
    launches, host = step.launches, step.timeline.host
    around = {step.op_records[index].row for index in copies} - {-1}
    copying = np.zeros(len(host), np.bool_)
    copying[list(around)] = True
    gone = step.inside(copying)[launches.rows] & (launches.wait == Wait.STREAM)
    gone[step.actions_of(copies)] = True
    waited = host.duration_ns[launches.rows[gone]].sum()
    return np.flatnonzero(gone & (waited >= _LEAST_SHARE * step.timeline.wall_ns))


FAULT = Fault(
    id="pageable-copies",
    title="Copies from pageable memory",
    kind="mistake",
    group="bandwidth",
    devices=("cuda",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
    fixes=(loaders.PINNED,),
)
