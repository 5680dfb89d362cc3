"""The events of a torch profiler trace, and the kind of row that each becomes."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, field

from boundby.capture.kineto.names import is_own
from boundby.model import DeviceKind, HostKind
from boundby.model.kernel_names import kernel_name

ABSENT = Raw(b"")

# A number, or a number as text: writers differ, and an old file mixes both.
Number = int | float | str | None
NONE = -1  # definition: the field is absent


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """The arguments of an event that boundby uses; the large ones are kept as raw JSON."""

    correlation: Number = NONE
    external: Number = field(default=NONE, name="External id")
    legacy_external: Number = field(default=NONE, name="external id")
    stream: Number = NONE
    device: Number = NONE
    bytes: Number = NONE
    graph: Number = field(default=NONE, name="graph id")
    graph_node: Number = field(default=NONE, name="graph node id")
    sequence: Number = field(default=NONE, name="Sequence number")
    forward_thread: Number = field(default=NONE, name="Fwd thread id")
    shapes: Raw = field(default=ABSENT, name="Input Dims")
    types: Raw = field(default=ABSENT, name="Input type")
    strides: Raw = field(default=ABSENT, name="Input Strides")
    values: Raw = field(default=ABSENT, name="Concrete Inputs")
    stack: str | None = field(default=None, name="Call stack")
    grid: Raw = ABSENT
    block: Raw = ABSENT
    message_elements: Number = field(default=NONE, name="In msg nelems")
    message_type: str | None = field(default=None, name="dtype")
    task: str | None = field(default=None, name="Task Type")


NO_ARGUMENTS = Arguments()


class Event(msgspec.Struct, frozen=True, gc=False):
    """One entry of `traceEvents`."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: float = float("nan")
    dur: float = -1.0
    args: Arguments = NO_ARGUMENTS


PYTHON_CATEGORY = "python_function"
# Current category names and those of traces before 2022; HIP uses the CUDA ones.
HOST_CATEGORIES: dict[str, HostKind] = {
    "cpu_op": HostKind.OP,
    "Operator": HostKind.OP,
    "user_annotation": HostKind.ANNOTATION,
    PYTHON_CATEGORY: HostKind.PYTHON,
    "cuda_runtime": HostKind.RUNTIME,
    "cuda_driver": HostKind.RUNTIME,
    "hip_runtime": HostKind.RUNTIME,
    "hip_driver": HostKind.RUNTIME,
    "xpu_runtime": HostKind.RUNTIME,
    "xpu_driver": HostKind.RUNTIME,
    "privateuse1_runtime": HostKind.RUNTIME,
    "privateuse1_driver": HostKind.RUNTIME,
    "mtia_runtime": HostKind.RUNTIME,
    "Runtime": HostKind.RUNTIME,
}
RUNTIME_CATEGORIES = frozenset(
    category for category, kind in HOST_CATEGORIES.items() if kind is HostKind.RUNTIME
)
OPERATOR_CATEGORIES = frozenset(HOST_CATEGORIES) - RUNTIME_CATEGORIES - {PYTHON_CATEGORY}
DEVICE_CATEGORIES: dict[str, DeviceKind] = {
    "kernel": DeviceKind.KERNEL,
    "Kernel": DeviceKind.KERNEL,
    "mtia_ccp_events": DeviceKind.KERNEL,
    "mtia_workloadd": DeviceKind.KERNEL,
    "hpu_op": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY_D2D,
    "Memcpy": DeviceKind.COPY_D2D,
    "gpu_memset": DeviceKind.MEMSET,
    "Memset": DeviceKind.MEMSET,
}

# Ascend's profiler writes no category: its device events have a task type, such as AI_CORE.
_NOT_WORK = ("EVENT", "PROFILER", "NOTIFY", "WAIT", "RECORD", "PLACE_HOLDER")
# MTIA's profiler lists waits of its queues beside their work.
_WAITS = frozenset({"event_wait", "event_record"})


def is_device_work(event: Event) -> bool:
    """Whether an event is work on a device."""
    if event.cat in DEVICE_CATEGORIES:
        return event.name not in _WAITS
    task = event.args.task
    return not event.cat and task is not None and not any(word in task for word in _NOT_WORK)


STEP_MARKER = "ProfilerStep"
# Calls between which launches are recorded into a graph and do not run.
BEGIN_CAPTURE, END_CAPTURE = "StreamBeginCapture", "StreamEndCapture"
OPTIMIZER_STEP = "Optimizer.step#"
_OPTIMIZER = "Optimizer."
_DATA_LOADER = "enumerate(DataLoader)"
_DATA_FRAME = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): __next__$")
_LAUNCH = re.compile(r"Launch|MemcpyAsync|Memcpy\w*Async|Memset\w*|MemsetD\w+")
# Calls in which the host waits. `hipMemcpyWithStream` is how ROCm's `.item()` copies.
_SYNC = re.compile(
    r"^(?:cuda|hip|cu)(?:Device|Stream|Event|Ctx)Synchronize(?:_\w+)?$"
    r"|^(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|WithStream|Peer)?(?:_\w+)?$"
    r"|^(?:cu|hip)Memcpy(?:HtoD|DtoH|DtoD)(?:_v2)?(?:_\w+)?$"
    r"|^(?:ur|pi)(?:QueueFinish|EventWait|EventsWait)$|^ze\w+Synchronize$|^aclrtSynchronize\w+$"
)
_TO_DEVICE = re.compile(r"HtoD|Host -> Device|HostToDevice")
_TO_HOST = re.compile(r"DtoH|Device -> Host|DeviceToHost")
PAGEABLE_TO_HOST = re.compile(r"DtoH.*Pageable")
PAGEABLE_TO_DEVICE = re.compile(r"HtoD.*Pageable")
# Copies from pageable memory up to this size return at once; for larger ones the call stages them
# through pinned memory itself, after waiting for the stream (CUDA's documentation).
HANDED_OVER_BYTES = 64 * 1024


def host_kind(kind: HostKind, name: str) -> HostKind:
    """The kind of a host row, by its name."""
    if kind is HostKind.RUNTIME:
        if _SYNC.search(name):
            return HostKind.SYNC
        return HostKind.LAUNCH if _LAUNCH.search(name) else kind
    if kind is HostKind.PYTHON:
        if _DATA_FRAME.search(name):
            return HostKind.DATA
        return HostKind.OBSERVER if is_own(name) else kind
    if name.startswith(_DATA_LOADER):
        return HostKind.DATA
    if name.startswith((STEP_MARKER, _OPTIMIZER)):  # old files call these operators
        return HostKind.ANNOTATION
    return kind


def device_kind(kind: DeviceKind, name: str) -> DeviceKind:
    """The kind of a device row, by its name."""
    if kind is DeviceKind.KERNEL:
        named = kernel_name(name).kernel_class
        return DeviceKind.COLLECTIVE if named == "communication" else kind
    if kind is DeviceKind.COPY_D2D:
        if _TO_DEVICE.search(name):
            return DeviceKind.COPY_H2D
        return DeviceKind.COPY_D2H if _TO_HOST.search(name) else kind
    return kind
