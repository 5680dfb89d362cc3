"""Any file gives a trace or a one-line error; never a crash, never a hang."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boundby.capture import kineto
from boundby.capture.kineto import stream
from boundby.capture.kineto.source import observe_trace
from boundby.diagnosis import diagnose
from boundby.model import Timeline
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from boundby.report.terminal import as_text
from tests.capture.kineto_events import DATA, step_events, text, write

BODY = text(step_events() * 3, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}]).encode()
FIELDS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]
ARGUMENTS = ["correlation", "External id", "stream", "Input Dims", "Input type", "Sequence number"]
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PIECE_BYTES", 700)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def check(path: Path, **options: Any) -> None:
    try:
        trace = kineto.read(path, **options)
    except BoundbyError as error:
        assert "\n" not in str(error)
        return
    for index in range(min(len(trace.steps), 3)):
        check_sound(trace.timeline(index))
        try:
            diagnosis = diagnose(observe_trace(trace, index=index))
        except BoundbyError as error:
            assert "takes no time" in str(error)
            continue
        check_diagnosed(diagnosis)


def check_diagnosed(diagnosis: Diagnosis) -> None:
    """The account adds up, the report can be printed, and what is saved can be read again."""
    total = sum(group.ns for group in diagnosis.account.groups().values())
    assert total == pytest.approx(diagnosis.step.wall_ns, abs=1.0)
    assert all(line.isprintable() for line in as_text(diagnosis).splitlines())
    msgspec.json.decode(msgspec.json.encode(diagnosis), type=Diagnosis)


def check_sound(timeline: Timeline) -> None:
    """Properties of the model that hold for any file."""
    host, device = timeline.host, timeline.device
    assert timeline.end_ns >= timeline.start_ns
    assert (host.duration_ns >= 0).all()
    assert (device.duration_ns >= 0).all()
    assert (host.parent < np.arange(len(host))).all()
    assert (device.launch < max(len(host), 1)).all()
    assert (device.op < max(len(host), 1)).all()
    assert (np.diff(device.start_ns) >= 0).all()
    assert all(name.isprintable() for name in timeline.names)
    for table, column in (
        (timeline.names, host.name),
        (timeline.sources, host.source),
        (timeline.modules, host.module),
        (timeline.calls, host.call),
    ):
        assert ((column >= -1) & (column < max(len(table), 1))).all()


common = settings(
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@common
@given(cut=st.integers(0, len(BODY)), packed=st.booleans())
def test_truncated_files_are_read_or_refused(folder: Path, cut: int, packed: bool) -> None:
    data = gzip.compress(BODY, 1) if packed else BODY
    check(write(folder, data[: cut * len(data) // len(BODY)]))


@common
@given(
    changes=st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.binary(max_size=4)), max_size=8)
)
def test_corrupted_files_are_read_or_refused(
    folder: Path, changes: list[tuple[int, bytes]]
) -> None:
    data = bytearray(BODY)
    for place, new in changes:
        data[place : place + len(new)] = new
    check(write(folder, bytes(data)))


@common
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 32), st.sampled_from(FIELDS), ODD), min_size=1, max_size=6
    ),
    arguments=st.lists(st.tuples(st.integers(0, 32), st.sampled_from(ARGUMENTS), ODD), max_size=6),
)
def test_odd_field_values_are_read_or_refused(
    folder: Path, changes: list[tuple[int, str, Any]], arguments: list[tuple[int, str, Any]]
) -> None:
    events = json.loads(BODY)["traceEvents"]
    for row, key, value in arguments:
        events[row]["args"][key] = value
    for row, key, value in changes:
        events[row][key] = value
    check(write(folder, json.dumps({"traceEvents": events})))


@common
@given(entries=st.lists(ODD, max_size=6), metadata=ODD)
def test_entries_that_are_not_events_are_skipped(
    folder: Path, entries: list[Any], metadata: Any
) -> None:
    events = [*step_events(), *entries]
    content = {"deviceProperties": metadata, "distributedInfo": metadata, "traceEvents": events}
    check(write(folder, json.dumps(content)))


@common
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(folder: Path, content: bytes) -> None:
    check(write(folder, content))


@common
@given(content=st.binary(max_size=300))
def test_any_event_bytes_are_read_or_refused(folder: Path, content: bytes) -> None:
    check(write(folder, b'{"traceEvents": [' + content + b"]}"))


@common
@given(
    times=st.lists(
        st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 10**6)), min_size=1, max_size=40
    ),
    rows=st.integers(1, 50),
)
def test_unordered_timestamps_are_read(
    folder: Path, times: list[tuple[int, int]], rows: int
) -> None:
    events = step_events() * 4
    for entry, (start, duration) in zip(events, times, strict=False):
        entry["ts"], entry["dur"] = start / 7, duration / 7
    check(write(folder, text(events)), whole_rows=rows)


@settings(parent=common, max_examples=25)
@given(data=st.data())
def test_corrupted_real_trace_is_read_or_refused(folder: Path, data: st.DataObject) -> None:
    content = bytearray(gzip.decompress((DATA / "bad_mlp_syncs.json.gz").read_bytes())[:200_000])
    for _ in range(data.draw(st.integers(1, 10))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    check(write(folder, bytes(content)))


@pytest.mark.parametrize("hostile", ["[" * 100_000, '{"a":' * 100_000, "}" * 300_000, " " * 10**6])
def test_hostile_shapes_end_in_bounded_time(tmp_path: Path, hostile: str) -> None:
    check(write(tmp_path, '{"traceEvents": [' + hostile))
    check(write(tmp_path, '{"x": ' + hostile))
