"""JSON of rocprofv3, written by hand: one process with a kernel, a copy and a marker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boundby.capture import sources
from boundby.capture.rocprof.source import RocprofSource
from boundby.model import DeviceKind, HostKind
from boundby.model.errors import BoundbyError


def _record(kind: int, operation: int, number: int, start: int, end: int, **more: Any) -> Any:
    return {
        "kind": kind,
        "operation": operation,
        "correlation_id": {"internal": number, "external": 0},
        "start_timestamp": 9_000_000_000_000_000 + start,
        "end_timestamp": 9_000_000_000_000_000 + end,
        "thread_id": 42,
        **more,
    }


def write_profile(path: Path) -> Path:
    kernel = {"kernel_id": 3, "agent_id": {"handle": 99}, "queue_id": {"handle": 1}}
    process = {
        "metadata": {"pid": 1},
        "agents": [
            {"id": {"handle": 98}, "type": 1, "name": "AMD EPYC"},
            {
                "id": {"handle": 99},
                "type": 2,
                "name": "gfx942",
                "product_name": "AMD Instinct MI300X",
                "cu_count": 304,
                "mem_banks": [{"size_in_bytes": 206_141_652_992}],
            },
        ],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]},
                {"kind": "KERNEL_DISPATCH", "operations": ["KERNEL_DISPATCH_COMPLETE"]},
                {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
                {"kind": "MARKER_CORE_API", "operations": ["roctxThreadRangeA"]},
            ],
            "marker_api": [{"key": 5, "value": "forward"}],
        },
        "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "Cijk_Ailk_Bljk_HHS"}],
        "buffer_records": {
            "hip_api": [_record(1, 0, 1, 1_000, 4_000), _record(1, 1, 2, 5_000, 8_000)],
            "kernel_dispatch": [_record(2, 0, 1, 6_000, 106_000, dispatch_info=kernel)],
            "memory_copy": [_record(3, 1, 2, 110_000, 120_000, bytes=4096)],
            "marker_api": [_record(4, 0, 5, 0, 9_000)],
        },
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}, indent=1))
    return path


def test_a_profile_becomes_an_observation(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "results.json")
    assert isinstance(sources.source_of(path), RocprofSource)
    (observed,) = sources.observe(path)
    timeline = observed.timeline
    assert timeline is not None
    assert (observed.device.name, observed.device.kind) == ("AMD Instinct MI300X", "hip")
    host, device = timeline.host, timeline.device
    assert [DeviceKind(kind) for kind in device.kind] == [DeviceKind.KERNEL, DeviceKind.COPY_H2D]
    assert device.duration_ns.tolist() == [100_000, 10_000]
    assert device.bytes.tolist() == [-1, 4096]
    named = [timeline.names[host.name[row]] for row in device.launch]
    assert named == ["hipLaunchKernel", "hipMemcpyAsync"]
    (marker,) = (row for row in range(len(host)) if host.kind[row] == HostKind.ANNOTATION)
    assert timeline.names[host.name[marker]] == "forward"


def test_damaged_profile_gives_a_one_line_error(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "results.json")
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(BoundbyError, match="damaged JSON of rocprofv3"):
        sources.observe(path)
