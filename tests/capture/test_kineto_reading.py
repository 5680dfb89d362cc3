"""From the bytes of a file to events: what is read, what is skipped, what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from boundby.capture import kineto
from boundby.capture.kineto import stream
from boundby.model.errors import BAD_INPUT, BoundbyError
from tests.capture.kineto_events import (
    DATA,
    Event,
    codes,
    event,
    kernel,
    launch,
    mark,
    op,
    step_events,
    text,
    write,
)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "no_suffix"])
def test_plain_and_gzip_read_alike(tmp_path: Path, name: str) -> None:
    trace = kineto.read(write(tmp_path, text(step_events()), name))
    assert trace.events == 11
    assert len(trace.timeline().host) == 9
    assert len(trace.timeline().device) == 2


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(text(step_events()).encode()), "trace.json")
    assert kineto.read(path).events == 11


def test_an_array_of_events_is_a_trace(tmp_path: Path) -> None:
    trace = kineto.read(write(tmp_path, json.dumps(step_events())))
    assert trace.events == 11
    assert trace.notes == []


@pytest.mark.parametrize("piece", [64, 500, 4096])
def test_chunk_boundaries_do_not_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    devices = [{"id": index, "name": "NVIDIA H200", "numSms": 132} for index in range(8)]
    body = json.dumps({"traceEvents": step_events() * 20, "deviceProperties": devices}, indent=1)
    path = write(tmp_path, body)
    whole = kineto.read(path)
    monkeypatch.setattr(stream, "PIECE_BYTES", piece)
    pieces = kineto.read(path)
    assert pieces.events == whole.events == 220
    assert pieces.notes == whole.notes == []
    assert [device.name for device in pieces.metadata.devices] == ["NVIDIA H200"] * 8


def test_metadata_of_trace(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        text(
            step_events(),
            deviceProperties=[{"id": 0, "name": "NVIDIA\x1b[31m H200", "totalGlobalMem": 150}],
            distributedInfo={"rank": 3, "world_size": 8},
        ),
    )
    timeline = kineto.read(path).timeline()
    assert timeline.device_name == "NVIDIA [31m H200"
    assert (timeline.rank, timeline.world, timeline.device_kind) == (3, 8, "cuda")


def test_hip_is_distinguished_from_cuda(tmp_path: Path) -> None:
    path = write(tmp_path, text(step_events(), hip_runtime_version=6))
    assert kineto.read(path).timeline().device_kind == "hip"


def test_truncated_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    body = text(step_events() * 50)
    trace = kineto.read(write(tmp_path, body[: len(body) // 2]))
    assert 200 < trace.events < 300
    assert "truncated-file" in codes(trace)


def test_truncated_gzip_is_read_up_to_its_end(tmp_path: Path) -> None:
    whole = (DATA / "bad_mlp_syncs.json.gz").read_bytes()
    trace = kineto.read(write(tmp_path, whole[: len(whole) // 2]))
    assert 4000 < trace.events < 8000
    assert "truncated-file" in codes(trace)


@pytest.mark.parametrize(
    "damaged",
    [
        '{"ph": "X", "cat": "cpu_op", "name": "a "quoted" name", "ts": 1, "dur": 1}',
        '{"ph": "X", "cat": "cpu_op", "name": "no duration", "ts": 1}',
        '{"ph": "X", "cat": "cpu_op", "name": "backwards", "ts": 1, "dur": -5}',
        '{"ph": "X", "cat": "cpu_op", "name": "no time", "ts": NaN, "dur": 1}',
        '{"ph": "X", "cat": "cpu_op", "name": "no time", "ts": null, "dur": 1}',
        '{"ph": "X", "cat": "cpu_op", "name": "never", "ts": 1e400, "dur": 1}',
        '{"ph": "X", "cat": "cpu_op", "name": 12, "ts": 1, "dur": 1}',
        "17",
        '"an event"',
        "[1, 2]",
        "null",
    ],
)
def test_a_damaged_event_is_skipped_and_counted(tmp_path: Path, damaged: str) -> None:
    good = [json.dumps(entry) for entry in step_events()]
    body = '{"traceEvents": [' + ", ".join([*good[:4], damaged, *good[4:]]) + "]}"
    trace = kineto.read(write(tmp_path, body))
    assert len(trace.timeline().device) == 2
    assert "damaged-events" in codes(trace)


@pytest.mark.parametrize(
    "odd",
    [
        b'{"ph": "X", "cat": "cpu_op", "name": "caf\xe9 \xff", "ts": 12, "dur": 1}',
        b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": "12.5", "dur": "1"}',
        b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 12, "dur": 1, "args": null}',
        b'{"ph": "X", "cat": "cpu_op", "name": "a\x01b", "ts": 12, "dur": 1}',
        b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 12, "dur": 1, "args":'
        b' {"External id": 99999999999999999999999999, "Sequence number": -1}}',
        b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 12, "dur": 1, "args": {"x": -Infinity}}',
        b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 12, "dur": 1, "args": {"x": nan}}',
    ],
)
def test_an_odd_event_is_read(tmp_path: Path, odd: bytes) -> None:
    good = [json.dumps(entry).encode() for entry in step_events()]
    body = b'{"traceEvents": [' + b", ".join([*good[:4], odd, *good[4:]]) + b"]}"
    trace = kineto.read(write(tmp_path, body))
    assert len(trace.timeline().host) == 10
    assert trace.notes == []


def test_control_characters_are_removed(tmp_path: Path) -> None:
    events = [op("aten::\x1b]0;evil\x07add\u202e", 0, 10), *step_events()]
    timeline = kineto.read(write(tmp_path, text(events))).timeline()
    assert all(name.isprintable() for name in timeline.names)


def test_numbers_as_text_and_old_stream_fields_are_read(tmp_path: Path) -> None:
    events = [
        event("Operator", "ProfilerStep#3", 1623143093496523, 100),
        event("Operator", "aten::add", 1623143093496530, 20),
        event("Runtime", "cudaLaunchKernel", 1623143093496535, 5, correlation=4),
        event("Kernel", "add", 1623143093496551, 7, correlation=4, stream=7),
    ]
    for entry in events:
        entry["tid"] = str(entry["tid"])
    events[3]["tid"] = "stream 7"
    timeline = kineto.read(write(tmp_path, text(events))).timeline()
    assert timeline.label == "ProfilerStep#3"
    assert timeline.device.duration_ns.tolist() == [7000]
    assert timeline.device.start_ns[0] == 1623143093496551000
    assert timeline.device.stream.tolist() == [7]
    assert timeline.names[timeline.host.name[timeline.device.op[0]]] == "aten::add"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"", "not a profiler trace: it is empty"),
        ("a.json", b"hello", "not a torch profiler trace: it has no traceEvents"),
        ("a.json", b'{"a": [1, 2]}', "not a torch profiler trace: it has no traceEvents"),
        ("a.json", b"\x1f\x8bnot gzip", "not a profiler trace: its gzip data is damaged"),
        ("a.json", b'{"traceEvents": []}', "no operators, runtime calls or kernels in it"),
        ("a.json", b'[{"ph": "X", "cat": "v8", "name": "gc"}]', "none among its 1 events"),
        ("a.xplane.pb", b"\x0a", "XLA profiles (.xplane.pb) are not supported yet"),
    ],
)
def test_file_of_another_format_gives_a_one_line_error(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BoundbyError) as error:
        kineto.read(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == BAD_INPUT


def test_missing_file_or_folder_gives_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(BoundbyError, match="no such file"):
        kineto.read(tmp_path / "gone.json")
    with pytest.raises(BoundbyError, match="a folder"):
        kineto.read(tmp_path)


def test_a_large_file_is_read_in_part(tmp_path: Path) -> None:
    events = []
    for step in range(9):
        events.append(mark(step, step * 1e6 * 2, 100 + step))
        for entry in step_events()[1:]:
            number = entry["args"].get("correlation")
            shifted = {**entry, "ts": entry["ts"] + step * 1e6 * 2}
            if number:
                shifted["args"] = {**entry["args"], "correlation": number + 10 * step}
            events.append(shifted)
    path = write(tmp_path, text(events))
    whole, part = kineto.read(path), kineto.read(path, whole_rows=20)
    assert [step.label for step in part.steps] == [step.label for step in whole.steps]
    assert part.median == whole.median == 4
    for index in (4, 8, 0):
        expected, found = whole.timeline(index), part.timeline(index)
        assert (found.start_ns, found.end_ns) == (expected.start_ns, expected.end_ns)
        assert np.array_equal(found.host.start_ns, expected.host.start_ns)
        assert found.names == expected.names


def test_a_large_file_without_markers_is_read_from_its_start(tmp_path: Path) -> None:
    events = [op(f"aten::op{index % 7}", index * 100.0, 50) for index in range(2000)]
    trace = kineto.read(write(tmp_path, text(events, indent="x" * 9)), whole_rows=500)
    assert "partial-read" in codes(trace)
    assert 0 < len(trace.timeline().host) < 2000


@pytest.mark.parametrize("rows", [10**6, 20])
def test_progress_runs_from_zero_to_one(tmp_path: Path, rows: int) -> None:
    shares: list[float] = []
    path = write(tmp_path, text(step_events() * 30), "trace.json.gz")
    kineto.read(path, whole_rows=rows, progress=shares.append)
    assert shares[-1] == 1
    assert all(0 <= share <= 1 for share in shares)


def test_missing_step_gives_a_one_line_error(tmp_path: Path) -> None:
    trace = kineto.read(write(tmp_path, text(step_events())))
    with pytest.raises(BoundbyError, match="no step 5: the trace has 1"):
        trace.timeline(5)


def test_graph_replays_are_marked(tmp_path: Path) -> None:
    in_graph: Event = {"graph node id": 3, "graph id": 1}
    events = [
        *step_events(),
        launch(103, 90, "cudaGraphLaunch"),
        kernel(103, 130, 5),
        kernel(103, 140, 5),
        kernel(104, 150, 5, **in_graph),
    ]
    timeline = kineto.read(write(tmp_path, text(events))).timeline()
    assert timeline.device.graph.tolist() == [False, False, True, True]
