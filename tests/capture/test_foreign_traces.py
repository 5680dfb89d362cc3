"""Traces that other devices and other profilers write, and damaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boundby.analysis.account import attribute_step
from boundby.capture import kineto, sources
from boundby.diagnosis import diagnose
from boundby.model import DeviceKind, HostKind, Machine, Timeline
from boundby.model.diagnosis import Diagnosis
from tests.capture.kineto_events import (
    ADDMM,
    Event,
    codes,
    event,
    frame,
    kernel,
    launch,
    mark,
    op,
    text,
    write,
)

MACHINE = Machine(device="unknown device", kind="cuda")


def _timeline(folder: Path, events: list[Event]) -> Timeline:
    return kineto.read(write(folder, text(events))).timeline()


def _diagnosis(folder: Path, events: list[Event], **metadata: Any) -> Diagnosis:
    path = write(folder, text(events, **metadata))
    return diagnose(sources.observe(path)[0])


def _codes(diagnosis: Diagnosis) -> set[str]:
    return {note.code for note in diagnosis.notes}


def _launched(runtime: str, work: str = "kernel") -> list[Event]:
    events = [mark(0, 0, 1000)]
    for number in range(30):
        ts = 10 + number * 30
        events += [
            op("aten::addmm", ts, 20, **ADDMM),
            event(runtime, "enqueue", ts + 2, 5, correlation=100 + number),
            event(work, "gemm_kernel", ts + 10, 12, 7, correlation=100 + number, stream=7),
        ]
    return events


@pytest.mark.parametrize(
    ("runtime", "work"),
    [
        ("xpu_runtime", "kernel"),
        ("xpu_driver", "kernel"),
        ("privateuse1_runtime", "kernel"),
        ("mtia_runtime", "mtia_ccp_events"),
    ],
)
def test_device_events_of_other_vendors_are_linked_to_launches(
    tmp_path: Path, runtime: str, work: str
) -> None:
    timeline = _timeline(tmp_path, _launched(runtime, work))
    assert len(timeline.device) == 30
    assert (timeline.device.launch >= 0).all()
    assert (timeline.host.kind[timeline.device.launch] == HostKind.LAUNCH).all()


def test_ascend_tasks_are_device_events(tmp_path: Path) -> None:
    tasks = [
        {"ph": "X", "name": name, "pid": 7, "tid": 3, "ts": ts, "dur": 30.0, "args": arguments}
        for name, ts, arguments in (
            ("MatMulV2", 100, {"Task Type": "AI_CORE"}),
            ("EVENT_WAIT", 140, {"Task Type": "EVENT_WAIT"}),
            ("hcom_allReduce__1", 180, {"Task Type": "HCCL"}),
        )
    ]
    timeline = _timeline(tmp_path, [op("aten::mm", 0, 300), *tasks])
    assert list(timeline.device.kind) == [DeviceKind.KERNEL, DeviceKind.COLLECTIVE]


def test_waits_of_mtia_queues_are_no_device_work(tmp_path: Path) -> None:
    events = _launched("mtia_runtime", "mtia_ccp_events")
    events += [
        event("mtia_ccp_events", name, 20, 900, 8) for name in ("event_wait", "event_record")
    ]
    assert len(_timeline(tmp_path, events).device) == 30


def test_trace_of_kernels_alone_has_an_account(tmp_path: Path) -> None:
    timeline = _timeline(tmp_path, [kernel(i, i * 10, 8, f"sgemm_{i}") for i in range(20)])
    account = attribute_step(timeline, MACHINE, wall_ns=float(timeline.wall_ns)).account
    assert sum(group.ns for group in account.groups().values()) == pytest.approx(198_000, rel=1e-4)


def test_trace_without_launches_has_an_uncertain_verdict(tmp_path: Path) -> None:
    found = _diagnosis(tmp_path, [kernel(i, i * 10, 8, f"sgemm_{i % 3}") for i in range(20)])
    assert found.verdict.uncertain
    assert not found.findings
    assert found.account.overhead.parts["python"] == 0
    assert {"no-host-events", "launches-not-recorded", "operators-not-recorded"} <= _codes(found)


@pytest.mark.parametrize(("launched", "is_doubted"), [(1, True), (5, False)])
def test_verdict_is_uncertain_if_most_launches_are_missing(
    tmp_path: Path, launched: int, is_doubted: bool
) -> None:
    events = [mark(0, 0, 1000), op("aten::mm", 0, 900)]
    events += [launch(1 + at, 10 + 100 * at) for at in range(launched)]
    events += [kernel(1 + at, 20 + 100 * at, 20) for at in range(8)]
    found = _diagnosis(tmp_path, events)
    assert ("launches-not-recorded" in _codes(found)) == is_doubted
    assert found.verdict.uncertain == is_doubted


def test_unexplained_idle_time_without_launches_is_unseen(tmp_path: Path) -> None:
    """The simulation without launches knows nothing of the idle times between kernels."""
    kernels = [kernel(i, i * 10_000, 8, "sgemm_kernel") for i in range(20)]
    found = _diagnosis(tmp_path, kernels)
    parts = found.account.overhead.parts
    assert parts["unseen"] > 0.9 * found.account.overhead.ns
    assert parts["python"] < 0.01 * found.account.overhead.ns


def test_kernel_of_an_unknown_launch_gets_no_operator(tmp_path: Path) -> None:
    events = [op("aten::mm", 0, 300, **ADDMM)]
    events += [kernel(0, 20 + i * 10, 8, f"kernel_{i}") for i in range(20)]
    timeline = _timeline(tmp_path, events)
    assert (timeline.device.op == -1).all()


def test_unused_gpu_is_not_the_roof_of_cpu_operators(tmp_path: Path) -> None:
    gpu = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}
    events = [mark(0, 0, 2000), *(op("aten::addmm", 10 + i * 60, 50, **ADDMM) for i in range(30))]
    found = _diagnosis(tmp_path, events, deviceProperties=[gpu])
    assert found.machine.device == "unknown device"
    assert all(row.roof_fraction is None for row in found.ops)
    (note,) = (note for note in found.notes if note.code == "cpu-trace")
    assert "A100" in note.text


def test_operators_faster_than_their_roofline_make_the_verdict_uncertain(tmp_path: Path) -> None:
    gpu = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}
    sizes = {
        **ADDMM,
        "Input Dims": [[4096], [4096, 4096], [4096, 4096], [], []],
        "Input Strides": [[1], [4096, 1], [4096, 1], [], []],
    }
    events = [mark(0, 0, 1000)]
    for number in range(1, 9):
        at = number * 100
        events += [op("aten::addmm", at, 20, **sizes), launch(number, at + 5)]
        events += [kernel(number, at + 15, 40, "sm80_xmma_gemm_bf16")]
    found = _diagnosis(tmp_path, events, deviceProperties=[gpu])
    assert found.verdict.uncertain
    assert "faster than the roofline" in found.verdict.why
    assert found.ops[0].roof_suspect
    assert not found.ops[0].upper_bound


@pytest.mark.parametrize("category", ["cpu_op", "cuda_runtime", "kernel", "python_function"])
@pytest.mark.parametrize("value", [1e300, -1e300, 9e15, float("inf")])
def test_impossible_durations_do_not_end_the_diagnosis(
    tmp_path: Path, category: str, value: float
) -> None:
    events = _launched("cuda_runtime")
    events.append({**event(category, "cudaDeviceSynchronize", 900, 5), "dur": value})
    events.append({**event(category, "cudaDeviceSynchronize", 900, 5), "ts": value})
    timeline = _timeline(tmp_path, events)
    account = attribute_step(timeline, MACHINE, wall_ns=float(timeline.wall_ns)).account
    total = sum(group.ns for group in account.groups().values())
    assert total == pytest.approx(timeline.wall_ns)


@pytest.mark.parametrize("field", ["ts", "dur"])
def test_event_with_a_distant_timestamp_is_damaged(tmp_path: Path, field: str) -> None:
    events = [{**one, "ts": one["ts"] + 1.7e15} for one in _launched("cuda_runtime")]
    usual = kineto.read(write(tmp_path, text(events))).timeline()
    events.append({**event("cpu_op", "aten::mm", 1.7e15, 5), field: 5e14})
    trace = kineto.read(write(tmp_path, text(events)))
    assert trace.timeline().wall_ns == usual.wall_ns
    assert "damaged-events" in codes(trace)


def test_step_marker_without_events_is_not_chosen(tmp_path: Path) -> None:
    work = [launch(i, 105 + i * 30) for i in range(30)]
    work += [kernel(i, 120 + i * 30, 20) for i in range(30)]
    events = [mark(0, 0, 49), mark(1, 60, 9300), *work]
    trace = kineto.read(write(tmp_path, text(events)))
    assert trace.steps[trace.median].label == "ProfilerStep#1"


def test_collective_size_comes_from_the_range_around_its_launch(tmp_path: Path) -> None:
    size: dict[str, Any] = {"Input Dims": [[1024, 1024]], "Input type": ["float"]}
    events = [
        mark(0, 0, 300),
        op("record_param_comms", 95, 90),
        event("user_annotation", "nccl:all_to_all", 100, 60, **size),
        launch(1, 110),
        kernel(1, 130, 50, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
    ]
    found = attribute_step(_timeline(tmp_path, events), MACHINE, wall_ns=300_000.0)
    (row,) = found.collectives
    assert row.bytes == 4 * 1024 * 1024


def test_idle_time_after_a_short_sync_is_host_time(tmp_path: Path) -> None:
    events = [
        mark(0, 0, 300_000),
        frame("app.py(10): main", 0, 300_000),
        launch(1, 110),
        kernel(1, 130, 500),
        event("cuda_runtime", "cudaStreamSynchronize", 640, 14),
        frame("app.py(20): preprocess", 700, 217_000),
        launch(2, 218_010),
        kernel(2, 218_040, 500),
    ]
    timeline = _timeline(tmp_path, events)
    found = attribute_step(timeline, MACHINE, wall_ns=float(timeline.wall_ns))
    parts = found.account.overhead.parts
    # It held the host for 14 us; the next launch takes 5, and its kernel starts 25 after it.
    assert parts["sync"] == pytest.approx(14_000 + 5_000 + 25_000)
    assert parts["python"] > 217_000_000
    assert [row.ns for row in found.idle] == [14_000]


def test_communication_kernels_of_any_library_are_collectives(tmp_path: Path) -> None:
    names = ("void deep_ep::internode::combine<8>(int4*)", "ncclDevKernel_AllReduce", "gemm_kernel")
    events = [kernel(at, at * 10, 8, name) for at, name in enumerate(names)]
    kinds = [DeviceKind.COLLECTIVE, DeviceKind.COLLECTIVE, DeviceKind.KERNEL]
    assert list(_timeline(tmp_path, events).device.kind) == kinds


def _captures(captured: int, run: int) -> list[Event]:
    """A step that launches kernels while a graph is captured, which do not run, and others."""
    events = [mark(0, 0, 2000), launch(1, 1, "cudaStreamBeginCapture")]
    events += [launch(10 + at, 10 + 6 * at) for at in range(captured)]
    events.append(launch(2, 1000, "cudaStreamEndCapture"))
    for at in range(run):
        events += [op("aten::mm", 1010 + 30 * at, 12), launch(500 + at, 1011 + 30 * at)]
        events.append(kernel(500 + at, 1020 + 30 * at, 3))
    return events


def test_capture_of_a_graph_is_not_diagnosed_as_a_step(tmp_path: Path) -> None:
    found = _diagnosis(tmp_path, _captures(30, 10))
    assert "graph-captured" in _codes(found)
    assert found.verdict.uncertain and "30 of 40 launches" in found.verdict.why
    faults = {finding.fault for finding in found.findings}
    assert not faults & {"eager-launches", "batch-too-small"} and not found.batches
    assert "graph-captured" not in _codes(_diagnosis(tmp_path, _captures(3, 30)))


def test_values_beyond_the_shapes_and_tuples_are_read(tmp_path: Path) -> None:
    """Other writers list the shapes of tensors alone, and print tuples."""
    recorded: Event = {
        "Input Dims": [[1, 3, 32, 32], [8, 3, 3, 3]],
        "Input type": ["Float", "Float"],
        "Concrete Inputs": ["", "", "", "(2,2)", "(1, 1)", "[1, 1]", "False", "()", "1"],
    }
    events = [op("aten::convolution", 0, 30, **recorded), launch(1, 5), kernel(1, 10, 20)]
    call = _timeline(tmp_path, events).calls[0]
    assert call.args[2:] == (None, (2, 2), (1, 1), (1, 1), False, (), 1)
