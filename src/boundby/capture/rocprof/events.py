"""Records of rocprofv3 as the events of a torch profiler trace, which contain the same facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from boundby.capture.kineto.events import NONE, Arguments, Event

_COPY_NAMES = (
    ("HOST_TO_DEVICE", "Memcpy HtoD (Host -> Device)"),
    ("DEVICE_TO_HOST", "Memcpy DtoH (Device -> Host)"),
    ("DEVICE_TO_DEVICE", "Memcpy DtoD (Device -> Device)"),
)
_GPU = 2  # the type of an agent: 1 is a CPU
_SIMDS_PER_UNIT = 4  # definition (CDNA)


class Correlation(msgspec.Struct, frozen=True, gc=False):
    internal: int = 0


class Handle(msgspec.Struct, frozen=True, gc=False):
    handle: int = 0


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    kernel_id: int = -1
    agent_id: Handle = Handle()
    queue_id: Handle = Handle()


class Record(msgspec.Struct, frozen=True, gc=False):
    """A call, a copy or a kernel."""

    kind: int | str = 0
    operation: int | str = 0
    start_timestamp: int = 0
    end_timestamp: int = 0
    thread_id: int = 0
    correlation_id: Correlation = Correlation()
    dispatch_info: Dispatch = Dispatch()
    stream_id: Handle | None = None
    bytes: int = -1


class BufferRecords(msgspec.Struct, frozen=True, gc=False):
    kernel_dispatch: list[Record] = []
    hip_api: list[Record] = []
    marker_api: list[Record] = []
    memory_copy: list[Record] = []


class Kind(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    operations: list[str] = []


class Marker(msgspec.Struct, frozen=True, gc=False):
    key: int = 0
    value: str = ""


class Strings(msgspec.Struct, frozen=True, gc=False):
    buffer_records: list[Kind] = []
    marker_api: list[Marker] = []


class Symbol(msgspec.Struct, frozen=True, gc=False):
    kernel_id: int = -1
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class Agent(msgspec.Struct, frozen=True, gc=False):
    id: Handle = Handle()
    type: int = 0
    product_name: str = ""
    model_name: str = ""
    name: str = ""
    cu_count: int = 0
    simd_count: int = 0
    mem_banks: list[dict[str, Any]] = []


class Process(msgspec.Struct, frozen=True, gc=False):
    """The events of one process."""

    strings: Strings = msgspec.field(default_factory=Strings)
    kernel_symbols: list[Symbol] = []
    agents: list[Agent] = []
    buffer_records: BufferRecords = msgspec.field(default_factory=BufferRecords)


def device_properties(process: Process) -> dict[str, Any]:
    """The GPUs that kernels ran on, as the torch profiler lists devices."""
    used = {one.dispatch_info.agent_id.handle for one in process.buffer_records.kernel_dispatch}
    agents = [agent for agent in process.agents if agent.type == _GPU]
    listed = [
        {
            "id": number,
            "name": f"AMD {name}" if name and "AMD" not in name else name,
            "numSms": agent.cu_count or agent.simd_count // _SIMDS_PER_UNIT or None,
            "totalGlobalMem": max(
                (bank.get("size_in_bytes", 0) for bank in agent.mem_banks), default=0
            )
            or None,
        }
        for number, agent in enumerate(agents)
        if agent.id.handle in used
        for name in [agent.product_name or agent.model_name or agent.name]
    ]
    return {"deviceProperties": listed, "hip_runtime_version": 0}


def process_events(process: Process) -> list[Event]:
    """All events of a process that boundby uses; times start with the first of them."""
    records = process.buffer_records
    together = (
        *records.kernel_dispatch,
        *records.hip_api,
        *records.memory_copy,
        *records.marker_api,
    )
    origin = min((one.start_timestamp for one in together), default=0)
    events = [
        *_kernels(process, origin),
        *_copies(process, origin),
        *_calls(process, origin),
        *_markers(process, origin),
    ]
    return [event for event in events if event.dur >= 0]


def _event(
    record: Record, category: str, name: str, origin: int, tid: int, args: Arguments
) -> Event:
    return Event(
        ph="X",
        cat=category,
        name=name,
        pid=0,
        tid=tid,
        ts=(record.start_timestamp - origin) / 1e3,
        dur=(record.end_timestamp - record.start_timestamp) / 1e3,
        args=args,
    )


def _numbers(handles: Sequence[int]) -> dict[int, int]:
    return {handle: number for number, handle in enumerate(dict.fromkeys(handles))}


def _kernels(process: Process, origin: int) -> Iterator[Event]:
    names = {
        one.kernel_id: one.formatted_kernel_name or one.kernel_name
        for one in process.kernel_symbols
    }
    dispatches = process.buffer_records.kernel_dispatch
    agents = _numbers([one.dispatch_info.agent_id.handle for one in dispatches])
    for one in dispatches:
        info = one.dispatch_info
        queue = one.stream_id.handle if one.stream_id else info.queue_id.handle
        args = Arguments(
            correlation=one.correlation_id.internal or NONE,
            device=agents[info.agent_id.handle],
            stream=queue,
        )
        name = names.get(info.kernel_id) or "unnamed kernel"
        yield _event(one, "kernel", name, origin, queue, args)


def _copies(process: Process, origin: int) -> Iterator[Event]:
    operations = _operations(process)
    for one in process.buffer_records.memory_copy:
        given = _operation(one, operations)
        name = next((name for word, name in _COPY_NAMES if word in given), "Memcpy")
        stream = one.stream_id.handle if one.stream_id else 0
        args = Arguments(
            correlation=one.correlation_id.internal or NONE,
            device=0,
            stream=stream,
            bytes=one.bytes,
        )
        yield _event(one, "gpu_memcpy", name, origin, stream, args)


def _calls(process: Process, origin: int) -> Iterator[Event]:
    operations = _operations(process)
    for one in process.buffer_records.hip_api:
        args = Arguments(correlation=one.correlation_id.internal or NONE)
        name = _operation(one, operations) or "unnamed HIP call"
        yield _event(one, "hip_runtime", name, origin, one.thread_id, args)


def _markers(process: Process, origin: int) -> Iterator[Event]:
    texts = {one.key: one.value for one in process.strings.marker_api}
    for one in process.buffer_records.marker_api:
        text = texts.get(one.correlation_id.internal)
        if text:
            yield _event(one, "user_annotation", text, origin, one.thread_id, Arguments())


def _operations(process: Process) -> list[Kind]:
    return process.strings.buffer_records


def _operation(record: Record, kinds: list[Kind]) -> str:
    """The name of an operation: indices of kinds and operations into the file's strings."""
    kind, operation = record.kind, record.operation
    if isinstance(operation, str):
        return operation
    found = (
        kinds[kind]
        if isinstance(kind, int) and 0 <= kind < len(kinds)
        else next((one for one in kinds if one.kind == kind), None)
    )
    if found is None or not 0 <= operation < len(found.operations):
        return ""
    return found.operations[operation]
