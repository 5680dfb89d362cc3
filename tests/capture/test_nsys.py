"""Nsight Systems' sqlite exports, written by hand: two steps of one kernel and one copy each."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from boundby.capture import sources
from boundby.capture.nsys.source import NsysSource, read
from boundby.model import DeviceKind, HostKind
from boundby.model.errors import BoundbyError

_THREAD = (7 << 24) | 42
_TEXTS = (
    (1, "cudaLaunchKernel_v7000"),
    (2, "void gemm_kernel<float>(float*)"),
    (3, "cudaMemcpyAsync_v3020"),
    (4, "step 1"),
    (5, "cudaStreamSynchronize_v3020"),
)
_SCHEMA = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
  (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
  (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,
   globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY
  (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,
   globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE NVTX_EVENTS
  (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
"""


def write_export(path: Path) -> Path:
    """Steps of 1 ms: an operator launches a kernel of 300 us, then 4 kB are copied to the host."""
    file = sqlite3.connect(path)
    file.executescript(_SCHEMA)
    file.executemany("INSERT INTO StringIds VALUES (?, ?)", _TEXTS)
    file.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', 150754820096, 132)")
    for number, start in enumerate((5_000_000, 6_000_000)):
        first = 10 * number + 1
        calls = [
            (start + 10_000, start + 20_000, _THREAD, first, 1),
            (start + 40_000, start + 50_000, _THREAD, first + 1, 3),
            (start + 60_000, start + 500_000, _THREAD, first + 2, 5),
        ]
        file.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", calls)
        kernel = (start + 30_000, start + 330_000, 0, 7, first, 7 << 24, 2, 2)
        file.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?)", kernel
        )
        copy = (start + 340_000, start + 345_000, 0, 7, first + 1, 7 << 24, 4096, 2, 2, 1)
        file.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", copy
        )
        step = ("step 0", None) if number == 0 else (None, 4)
        ranges = [
            (start, start + 1_000_000, 59, *step, _THREAD),
            (start + 5_000, start + 25_000, 59, "aten::mm, seq = 12", None, _THREAD),
            (start + 5_000, None, 34, "a mark", None, _THREAD),
        ]
        file.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", ranges)
    file.commit()
    file.close()
    return path


def test_an_export_becomes_a_timeline(tmp_path: Path) -> None:
    path = write_export(tmp_path / "report.sqlite")
    assert isinstance(sources.source_of(path), NsysSource)
    trace = read(path)
    assert [step.label for step in trace.steps] == ["ProfilerStep#0", "ProfilerStep#1"]
    timeline = trace.timeline(0)
    host, device = timeline.host, timeline.device
    assert timeline.device_name == "NVIDIA H200"
    assert [DeviceKind(kind) for kind in device.kind] == [DeviceKind.KERNEL, DeviceKind.COPY_D2H]
    assert device.duration_ns.tolist() == [300_000, 5_000]
    assert device.bytes.tolist() == [-1, 4096]
    named = [timeline.names[host.name[row]] for row in device.launch]
    assert named == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert timeline.names[host.name[device.op[0]]] == "aten::mm"
    assert device.op[1] == -1
    assert (host.kind == HostKind.SYNC).sum() == 1


def test_export_is_recognised_and_other_databases_are_not(tmp_path: Path) -> None:
    (observed,) = sources.observe(write_export(tmp_path / "report.bin"))
    assert observed.source == "nsys"
    assert observed.device.name == "NVIDIA H200"
    other = tmp_path / "other.sqlite"
    file = sqlite3.connect(other)
    file.execute("CREATE TABLE customers (name TEXT)")
    file.commit()
    file.close()
    with pytest.raises(BoundbyError, match="not a format"):
        sources.observe(other)
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes((tmp_path / "report.bin").read_bytes()[:3000])
    with pytest.raises(BoundbyError):
        sources.observe(damaged)


@pytest.mark.parametrize("value", [1.5, "text", b"\xff", None, -1, 2**62])
def test_values_of_another_type_are_unknown(tmp_path: Path, value: object) -> None:
    path = write_export(tmp_path / "report.sqlite")
    file = sqlite3.connect(path)
    for table, columns in (
        ("CUPTI_ACTIVITY_KIND_RUNTIME", ("globalTid", "correlationId", "nameId")),
        ("CUPTI_ACTIVITY_KIND_KERNEL", ("deviceId", "streamId", "correlationId", "globalPid")),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", ("bytes", "copyKind", "srcKind")),
        ("NVTX_EVENTS", ("eventType", "text", "globalTid")),
        ("TARGET_INFO_GPU", ("id", "name", "totalMemory")),
        ("StringIds", ("value",)),
    ):
        for column in columns:
            file.execute(f"UPDATE {table} SET {column} = ?", (value,))
    file.commit()
    file.close()
    (observed,) = sources.observe(path)
    assert observed.timeline is not None
    assert len(observed.timeline.device)


def test_graphs_recorded_as_a_whole_are_device_work(tmp_path: Path) -> None:
    path = write_export(tmp_path / "report.sqlite")
    file = sqlite3.connect(path)
    file.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId"
        " INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER)"
    )
    file.execute(
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE SELECT start, end, deviceId, streamId,"
        " correlationId, globalPid, 5 FROM CUPTI_ACTIVITY_KIND_KERNEL"
    )
    file.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    file.commit()
    file.close()
    (observed,) = sources.observe(path)
    timeline = observed.timeline
    assert timeline is not None and observed.device.name == "NVIDIA H200"
    assert timeline.names[timeline.device.name[0]] == "CUDA graph 5"
    assert timeline.device.graph.tolist() == [True, False]
    assert "whole-graphs" in {note.code for note in observed.notes}


def test_export_without_kernels_is_a_one_line_error(tmp_path: Path) -> None:
    path = write_export(tmp_path / "report.sqlite")
    file = sqlite3.connect(path)
    file.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    file.commit()
    file.close()
    with pytest.raises(BoundbyError, match="no kernels in this export"):
        sources.observe(path)
