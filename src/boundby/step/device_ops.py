"""The operations of a step on an accelerator: kernels by operator call, with roofline minima."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import numpy.typing as npt

from boundby import ops as costs
from boundby.model import (
    Cost,
    DeviceEvents,
    DeviceKind,
    Ints,
    Machine,
    OpCall,
    Phase,
    Precision,
    Timeline,
)
from boundby.model.assumptions.device import CACHED_BYTES
from boundby.model.kernel_names import KernelClass, kernel_name
from boundby.step.device_busy import exposed, priorities
from boundby.step.nesting import nearest
from boundby.step.op_record import Costs, OpRecord, allowed_dtype, bound_of, xla_dtype

# "tf32" in names of cuDNN and newer cuBLAS kernels, "s1688" (float32 input, 16x8x8 tiles) in
# CUTLASS's.
_TF32_KERNEL = re.compile(r"tf32|s1688")
_WINOGRAD = re.compile(r"winograd", re.IGNORECASE)
# F(4x4, 3x3): 36 products instead of the 144 of the direct convolution; the most that libraries
# save.
_WINOGRAD_SAVES = 4.0
_CHECKPOINT = "torch/utils/checkpoint.py"
_NODE = "evaluate_function"
_LINKS = {DeviceKind.COPY_H2D: "host_link.h2d", DeviceKind.COPY_D2H: "host_link.d2h"}


def owners(timeline: Timeline, costed: Costs) -> Ints:
    """For each device event the innermost operator around its launch that has a cost; -1 for
    none."""
    host = timeline.host
    has_cost = np.array([*costed.is_costed, False])[host.call]
    around = np.append(nearest(host.parent, has_cost), -1)
    return around[timeline.device.op]


def _payloads(timeline: Timeline, costed: Costs) -> Ints:
    """For each collective that does not state its size, the call that does; -1 for none.

    That is the innermost call around its launch, which may be a range that the backend marked
    (`nccl:all_to_all`) inside an operator without arguments.
    """
    host, device = timeline.host, timeline.device
    has_cost = np.array([*costed.is_costed, False])[host.call]
    around = np.append(nearest(host.parent, has_cost), -1)[device.launch]
    silent = (device.kind == DeviceKind.COLLECTIVE) & (device.bytes <= 0) & (around >= 0)
    payloads = np.full(len(device), -1, np.int64)
    payloads[silent] = host.call[around[silent]]
    return payloads


def device_work(
    timeline: Timeline, machine: Machine, precision: Precision
) -> tuple[list[OpRecord], Ints]:
    """All operations of the device, and the operation that each device event belongs to."""
    device = timeline.device
    costed = Costs(timeline, machine)
    owner = owners(timeline, costed)
    exposed_ns = exposed(
        device.start_ns, device.duration_ns, priorities(timeline, _contractions(timeline, owner))
    )
    # Kernels of one operator call share its cost; an event without an owner is its own operation.
    is_unowned = np.isin(
        device.kind, [DeviceKind.COPY_H2D, DeviceKind.COPY_D2H, DeviceKind.COLLECTIVE]
    )
    group = np.where((owner >= 0) & ~is_unowned, owner, _replayed_groups(device))
    groups, member = np.unique(group, return_inverse=True)
    ns = np.bincount(member, weights=device.duration_ns)
    shown = np.bincount(member, weights=exposed_ns)
    kernels = np.bincount(member)
    first = np.full(len(groups), len(device), np.int64)
    np.minimum.at(first, member, np.arange(len(device)))
    names = [timeline.names[index] for index in device.name[first]]
    on_tf32 = _on_kernel(_TF32_KERNEL, timeline, member, len(groups))
    on_winograd = _on_kernel(_WINOGRAD, timeline, member, len(groups))
    payloads = _payloads(timeline, costed)
    op_records, calls = [], timeline.calls
    for index, row in enumerate(groups):
        event = int(first[index])
        record = OpRecord(
            name=names[index],
            op_class="unknown",
            bound="unknown",
            ns=float(ns[index]),
            exposed_ns=float(shown[index]),
            kernels=int(kernels[index]),
        )
        record.kernel_class = _kernel_class(DeviceKind(device.kind[event]), names[index])
        op = int(row) if row >= 0 else int(device.op[event])
        _place(record, timeline, op)
        if op >= 0 and device.kind[event] == DeviceKind.KERNEL:
            record.name = timeline.names[timeline.host.name[op]]
        call = _call_of(timeline, int(row), event)
        if payloads[event] >= 0:
            call = int(payloads[event])
        cost = costed.of_call[call] if call >= 0 else None
        if row < 0:
            _place_event(record, device, event)
        if payloads[event] >= 0:
            record.call = call
        elif call >= 0:
            record.name = timeline.names[timeline.host.name[row]] if row >= 0 else calls[call].name
            record.call = call
        if payloads[event] >= 0:
            record.op_class, record.bound, record.cost = "communication", "network", cost
        elif cost is not None:
            dtype = _product_dtype(calls[call], record.name, timeline, precision)
            cost = costed.on(cost, "tf32" if on_tf32[index] else dtype)
            _set_cost(record, machine, _winograd(cost) if on_winograd[index] else cost)
        elif call < 0:
            _cost_event(record, timeline, machine, event)
        if call >= 0 and (called := calls[call].hlo) is not None and called.calls_python:
            # The program waits for the host, whatever the arguments.
            record.bound, record.floor_ns = "python", None
        op_records.append(record)
    return op_records, member


def _kernel_class(kind: DeviceKind, name: str) -> KernelClass | None:
    """The class of a device event; None if the kernel's name does not tell."""
    if kind == DeviceKind.KERNEL:
        return kernel_name(name).kernel_class
    return "communication" if kind == DeviceKind.COLLECTIVE else "copy"


def _product_dtype(call: OpCall, name: str, timeline: Timeline, precision: Precision) -> str | None:
    """The dtype in which an operator's float32 products may be computed; None if unknown."""
    if call.hlo is not None:
        return xla_dtype(call.hlo, timeline.device_kind)
    return allowed_dtype(precision, name, on_cuda=timeline.device_kind == "cuda")


def _replayed_groups(device: DeviceEvents) -> Ints:
    """A negative number for each row; rows of the same operator of a captured graph share one."""
    single: Ints = -1 - np.arange(len(device), dtype=np.int64)
    if device.share is None:
        return single
    return np.where(device.share >= 0, -1 - len(device) - device.share.astype(np.int64), single)


def _winograd(cost: Cost) -> Cost:
    """The minimum arithmetic of a Winograd convolution, in place of the direct one."""
    flops = {unit: amount / _WINOGRAD_SAVES for unit, amount in cost.flops.items()}
    return msgspec.structs.replace(cost, flops=flops, repeated=cost.repeated / _WINOGRAD_SAVES)


def _on_kernel(
    named: re.Pattern[str], timeline: Timeline, member: Ints, groups: int
) -> npt.NDArray[np.bool_]:
    """The indices of operations that run a kernel whose name matches."""
    says_so = np.array([bool(named.search(name)) for name in timeline.names])
    matches = np.zeros(groups, np.bool_)
    matches[member[says_so[timeline.device.name]]] = True
    return matches


def _contractions(timeline: Timeline, owner: Ints) -> npt.NDArray[np.bool_]:
    by_name = np.array([*(costs.op_class(name) == "contraction" for name in timeline.names), False])
    name = np.append(timeline.host.name, np.int32(-1))[owner]
    result: npt.NDArray[np.bool_] = by_name[name]
    if timeline.device.call is not None:
        classes = [costs.op_class(call.name) == "contraction" for call in timeline.calls]
        result |= np.array([*classes, False])[timeline.device.call] & (owner < 0)
    return result


def _place(record: OpRecord, timeline: Timeline, row: int) -> None:
    """Set the line, module and phase that called an operation."""
    if row < 0:
        return
    host = timeline.host
    record.row = row
    record.source = int(host.source[row])
    record.inside = -1 if host.inside is None else int(host.inside[row])
    record.module = int(host.module[row])
    record.phase = int(host.phase[row])
    record.call = int(host.call[row])


def _place_event(record: OpRecord, device: DeviceEvents, event: int) -> None:
    """Set the line, module and phase of an operation that no operator encloses."""
    if device.source is not None and device.source[event] >= 0:
        record.source = int(device.source[event])
    if device.inside is not None:
        record.inside = int(device.inside[event])
    if device.module is not None:
        record.module = int(device.module[event])
    if device.phase is not None:
        record.phase = int(device.phase[event])


def _call_of(timeline: Timeline, row: int, event: int) -> int:
    """The operator call of an operation; -1 for none."""
    if row >= 0:
        return int(timeline.host.call[row])
    calls = timeline.device.call
    return -1 if calls is None else int(calls[event])


def _set_cost(record: OpRecord, machine: Machine, cost: Cost) -> None:
    record.cost = cost
    record.floor_ns = machine.floor(record.cost)
    record.op_class = costs.op_class(record.name) or "unknown"
    record.bound = bound_of(machine, record.cost, record.kernels)
    _drop_exceeded_memory_minimum(record, machine, cost)
    if record.op_class == "communication":
        record.bound, record.floor_ns = (
            "network",
            None,
        )  # the memory roof does not apply to the network


def _cost_event(record: OpRecord, timeline: Timeline, machine: Machine, event: int) -> None:
    """The cost of an event without an operator: copies, memsets and collectives state their
    size."""
    device = timeline.device
    kind = DeviceKind(int(device.kind[event]))
    size = float(device.bytes[event])
    if kind is DeviceKind.COLLECTIVE:
        record.op_class, record.bound = "communication", "network"
        record.cost = Cost(bytes_read=size) if size > 0 else None
        return
    if kind is DeviceKind.KERNEL or size < 0:
        return
    record.op_class = "movement"
    if kind in _LINKS:
        record.bound = "host_link"
        record.cost = Cost(bytes_read=size)
        rate = machine.rate(_LINKS[kind])
        record.floor_ns = size / rate * 1e9 if rate else None
        return
    reads = size if kind is DeviceKind.COPY_D2D else 0.0
    record.cost = Cost(bytes_read=reads, bytes_written=size)
    record.floor_ns = machine.floor(record.cost)
    record.bound = bound_of(machine, record.cost, record.kernels)
    _drop_exceeded_memory_minimum(record, machine, record.cost)


def _drop_exceeded_memory_minimum(record: OpRecord, machine: Machine, cost: Cost) -> None:
    """An operation faster than device memory had its data in a cache, whose roof may be unknown."""
    cached = machine.rate("memory.cache") is None and cost.footprint < CACHED_BYTES.value
    if cached and record.bound == "memory" and (record.floor_ns or 0.0) > record.ns:
        record.floor_ns = None


def recomputed(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """A mask of the host rows that run a second time in backward, by activation checkpointing.

    A reentrant checkpoint also runs the backward of its part inside its own frame: rows nearer to
    the engine's evaluation of a node than to the checkpoint are that backward.
    """
    host = timeline.host
    named = np.array([_CHECKPOINT in name for name in timeline.names] or [False])
    nodes = np.array([_NODE in name for name in timeline.names] or [False])
    around = nearest(host.parent, named[host.name] | nodes[host.name])
    in_backward = host.phase == Phase.BACKWARD
    is_recomputed: npt.NDArray[np.bool_] = (around >= 0) & named[host.name[around]] & in_backward
    return is_recomputed


def recomputed_flops(op_records: list[OpRecord], timeline: Timeline) -> float:
    """FLOPs computed again in backward: by checkpoints, and by attention that does not store
    scores."""
    is_recomputed = recomputed(timeline)
    return sum(
        matrix_flops(record.cost)
        if record.row >= 0 and is_recomputed[record.row]
        else record.cost.repeated
        for record in op_records
        if record.cost is not None
    )


def matrix_flops(cost: Cost) -> float:
    return sum(amount for unit, amount in cost.flops.items() if unit.startswith("matmul."))
