"""Real traces: our own, and the public ones where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boundby.capture import kineto
from boundby.model import HostKind, Timeline
from boundby.model.errors import BoundbyError
from tests.capture.kineto_events import DATA, SHARED

TRACES = sorted(path for path in SHARED.rglob("*.*") if path.suffix in (".gz", ".json", ".pb"))
needs_shared = pytest.mark.skipif(not TRACES, reason="the shared traces are not here")

# Clean device-busy time in ms, measured without shapes and stacks.
BUSY_MS = {
    "bert_large_bf16_eager": 61.5,
    "bert_large_bf16_compiled": 37.5,
    "bert_base_b1_overhead": 5.8,
    "bad_mlp_syncs": 2.8,
}


def busy_ns(timeline: Timeline) -> int:
    """The union of the device's intervals, inside the step."""
    device = timeline.device
    start = np.clip(device.start_ns, timeline.start_ns, timeline.end_ns)
    end = np.clip(device.start_ns + device.duration_ns, timeline.start_ns, timeline.end_ns)
    latest = np.maximum.accumulate(end)
    free = np.concatenate([start[:1], latest[:-1]])
    return int(np.maximum(latest - np.maximum(start, free), 0).sum())


def known(column: np.ndarray[tuple[int], np.dtype[np.int32]]) -> float:
    return float(np.mean(column >= 0))


@pytest.mark.parametrize("name", ["bad_mlp_syncs", "bert_base_b1_overhead"])
def test_own_traces_are_read(name: str) -> None:
    trace = kineto.read(DATA / f"{name}.json.gz")
    timeline = trace.timeline()
    assert (trace.steps_from, len(trace.steps), trace.notes) == ("markers", 2, [])
    assert busy_ns(timeline) == pytest.approx(BUSY_MS[name] * 1e6, rel=0.02)
    assert timeline.device_name == "NVIDIA H200"
    assert known(timeline.device.launch) == known(timeline.device.op) == 1
    assert known(timeline.host.source[timeline.device.op]) == 1
    assert known(timeline.host.call[timeline.device.op]) == 1


def test_syncs_are_found() -> None:
    timeline = kineto.read(DATA / "bad_mlp_syncs.json.gz").timeline()
    # 25 waits for the device, and one copy of a batch out of pageable memory.
    assert np.count_nonzero(timeline.host.kind == HostKind.SYNC) == 26


@needs_shared
@pytest.mark.parametrize("name", BUSY_MS)
def test_device_time_is_that_of_the_clean_step(name: str) -> None:
    timeline = kineto.read(SHARED / "h200" / f"{name}.json.gz").timeline()
    assert busy_ns(timeline) == pytest.approx(BUSY_MS[name] * 1e6, rel=0.02)


@needs_shared
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_trace_is_read_or_refused_in_one_line(path: Path) -> None:
    try:
        trace = kineto.read(path)
    except BoundbyError as error:
        assert ".xplane.pb" in path.name
        assert "\n" not in str(error)
        return
    for index in range(len(trace.steps)):
        timeline = trace.timeline(index)
        assert len(timeline.host) or len(timeline.device)
        assert busy_ns(timeline) <= timeline.wall_ns


def public(name: str) -> Timeline:
    return kineto.read(SHARED / "public" / f"{name}.json.gz").timeline()


@needs_shared
def test_waiting_for_data_is_seen_and_shrinks_with_workers() -> None:
    waits = []
    for workers in (0, 4):
        host = public(f"v100_resnet50_dataloader_workers{workers}").host
        waits.append(int(host.duration_ns[host.kind == HostKind.DATA].sum()))
    assert waits[0] > 40e6
    assert waits[1] < waits[0] / 20


@needs_shared
def test_work_queued_before_the_step_is_not_idle_time() -> None:
    timeline = public("mi300x_vllm_piecewise_graphs")
    assert busy_ns(timeline) > 0.99 * timeline.wall_ns
    assert np.mean(timeline.device.graph) > 0.8
    checkpointing = public("mi300x_resnet_activation_checkpointing")
    assert busy_ns(checkpointing) > 0.98 * checkpointing.wall_ns
