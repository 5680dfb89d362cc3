"""Lines of a recorded step in the timeline of another."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest

from boundby.capture.jax.host_lines import with_lines
from boundby.capture.jax.line_recorder import LineMark, LineRecord, LineRecorder
from boundby.capture.jax.places import Place
from boundby.model import DeviceEvents, HostEvents, HostKind, Timeline

THREAD = 7


def _timeline(rows: list[tuple[int, int, HostKind, str]], end: int, launch: int) -> Timeline:
    names = sorted({name for *_, name in rows})
    count = len(rows)
    nothing = np.full(count, -1, np.int32)
    host = HostEvents(
        start_ns=np.array([row[0] for row in rows], np.int64),
        duration_ns=np.array([row[1] for row in rows], np.int64),
        kind=np.array([row[2] for row in rows], np.int8),
        name=np.array([names.index(row[3]) for row in rows], np.int32),
        thread=np.full(count, THREAD),
        parent=nothing,
        call=nothing,
        source=nothing,
        module=nothing,
        phase=np.zeros(count, np.int8),
        sequence=np.full(count, -1, np.int64),
        forward=nothing,
        external=np.full(count, -1, np.int64),
    )
    one = np.array([1], np.int64)
    device = DeviceEvents(
        start_ns=one,
        duration_ns=one,
        kind=np.zeros(1, np.int8),
        name=np.zeros(1, np.int32),
        stream=one,
        launch=np.array([launch], np.int32),
        op=np.array([-1], np.int32),
        graph=np.zeros(1, np.bool_),
        bytes=one,
    )
    return Timeline(
        start_ns=0,
        end_ns=end,
        host=host,
        device=device,
        names=names,
        sources=[],
        modules=[],
        calls=[],
        device_name=None,
        device_kind="cpu",
        label=None,
        notes=[],
    )


def _marks(*marks: tuple[int, int]) -> list[LineMark]:
    return [LineMark(time, "train.py", "main", line) for time, line in marks]


def _place(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


CALL, WAIT = HostKind.OP, HostKind.OBSERVER


def _spent(timeline: Timeline) -> dict[str, int]:
    host = timeline.host
    python = host.kind == HostKind.PYTHON
    spent: Counter[str] = Counter()
    for source, ns in zip(host.source[python], host.duration_ns[python], strict=True):
        spent[timeline.sources[source]] += int(ns)
    return dict(spent)


def test_time_between_calls_is_divided_by_recorded_shares() -> None:
    recorded = _timeline([(400, 100, CALL, "f"), (600, 1, WAIT, "wait")], 601, 0)
    other = _timeline([(200, 50, CALL, "f"), (260, 1, WAIT, "wait")], 261, 0)
    record = LineRecord(_marks((1000, 1), (1100, 2), (1400, 3), (1550, 4)), 1000, 1600)
    timeline = with_lines(other, recorded, record, _place)
    assert _spent(timeline) == {
        "train.py:1": 50,
        "train.py:2": 150,
        "train.py:3": 55,
        "train.py:4": 5,
    }


def test_calls_and_launches_keep_their_rows_and_get_lines() -> None:
    recorded = _timeline([(400, 100, CALL, "f"), (600, 1, WAIT, "wait")], 601, 0)
    record = LineRecord(_marks((0, 1), (399, 2), (520, 3)), 0, 600)
    timeline = with_lines(recorded, recorded, record, _place)
    launched = timeline.device.launch[0]
    host = timeline.host
    assert timeline.names[host.name[launched]] == "f"
    assert timeline.sources[host.source[launched]] == "train.py:2"
    assert host.kind[host.parent[launched]] == HostKind.PYTHON


def test_missing_calls_are_skipped() -> None:
    recorded = _timeline(
        [(100, 10, CALL, "g"), (400, 100, CALL, "f"), (600, 1, WAIT, "wait")], 601, 0
    )
    other = _timeline([(400, 100, CALL, "f"), (600, 1, WAIT, "wait")], 601, 0)
    record = LineRecord(_marks((0, 1), (300, 2), (550, 3)), 0, 600)
    spent = _spent(with_lines(other, recorded, record, _place))
    assert spent == {"train.py:1": 300, "train.py:2": 250, "train.py:3": 50}


def test_very_many_lines_keep_their_shares() -> None:
    recorded = _timeline([(1_000_000, 1, WAIT, "wait")], 1_000_001, 0)
    marks = _marks(*((at * 50, 1 if at % 4 else 2) for at in range(20_000)))
    spent = _spent(with_lines(recorded, recorded, LineRecord(marks, 0, 1_000_000), _place))
    assert sum(spent.values()) == 1_000_000


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tool traces lines")
def test_recorder_returns_to_the_line_of_the_caller() -> None:
    recorder = LineRecorder()

    def inner() -> None:
        sum(range(10))

    recorder.start()
    inner()
    [*range(3)]
    recorder.stop()
    assert recorder.record is not None
    functions = [mark.function for mark in recorder.record.marks]
    caller = test_recorder_returns_to_the_line_of_the_caller.__name__
    assert "inner" in functions
    after = functions[functions.index("inner") :]
    assert caller in after
    assert sys.gettrace() is None


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tool traces lines")
def test_lines_of_functions_know_the_line_of_the_loop() -> None:
    recorder = LineRecorder()

    def inner() -> None:
        sum(range(10))

    def layer() -> None:
        inner()

    recorder.start()
    for _ in range(2):
        layer()
    recorder.stop()
    assert recorder.record is not None
    marks = recorder.record.marks
    loop = test_lines_of_functions_know_the_line_of_the_loop.__name__
    assert {mark.outer for mark in marks if mark.function == loop} == {None}
    called = {mark.outer[1] for mark in marks if mark.function == "inner" and mark.outer}
    (line,) = called
    assert line in {mark.line for mark in marks if mark.function == loop}


def test_calls_know_the_line_of_the_loop() -> None:
    recorded = _timeline([(400, 100, CALL, "f"), (600, 1, WAIT, "wait")], 601, 0)
    marks = _marks((0, 1), (520, 3))
    marks.insert(1, LineMark(399, "net.py", "layer", 2, ("train.py", 1)))
    timeline = with_lines(recorded, recorded, LineRecord(marks, 0, 600), _place)
    host = timeline.host
    assert host.outer is not None
    at = timeline.device.launch[0]
    assert timeline.sources[host.source[at]] == "net.py:2"
    assert timeline.sources[host.outer[at]] == "train.py:1"
