"""Observations from JSON of rocprofv3: one for each process in the file."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from boundby.capture.kineto.source import head_of, observe_trace
from boundby.capture.kineto.stream import ByteStream
from boundby.capture.kineto.trace import trace_of_events
from boundby.capture.rocprof.events import Process, device_properties, process_events
from boundby.model.errors import BoundbyError
from boundby.model.observation import Observation

_BEGINS = re.compile(rb'^\s*\{\s*"rocprofiler-sdk-tool"\s*:')


class _File(msgspec.Struct, gc=False):
    processes: list[Process] = msgspec.field(default_factory=list, name="rocprofiler-sdk-tool")


class RocprofSource:
    """Reads the JSON that `rocprofv3` writes: kernels, copies, HIP calls and markers."""

    name = "rocprofv3 JSON"

    def recognises(self, path: Path) -> bool:
        return _BEGINS.match(head_of(path)) is not None

    def observe(
        self, path: Path, *, index: int | None = None, wall_ns: float | None = None
    ) -> list[Observation]:
        try:
            read = msgspec.json.decode(b"".join(ByteStream(path)), type=_File)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BoundbyError(f"{path}: damaged JSON of rocprofv3: {error}") from None
        worked = [one for one in read.processes if one.buffer_records.kernel_dispatch]
        if not worked:
            what = "no kernels in it: profile with rocprofv3 --kernel-trace --hip-trace"
            raise BoundbyError(f"{path}: {what}")
        observations = []
        for process in worked:
            trace = trace_of_events(path, [process_events(process)], device_properties(process))
            observations.append(
                observe_trace(trace, index=index, wall_ns=wall_ns, source="rocprof")
            )
        return observations
