"""Graph replays take their operators from a trace of the same model without graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundby
from boundby.model.diagnosis import Diagnosis
from boundby.model.errors import BoundbyError
from tests.capture.kineto_events import (
    ADDMM,
    Event,
    event,
    frame,
    kernel,
    launch,
    mark,
    op,
    text,
    write,
)

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::clamp>"
SIZES: Event = {"Input Dims": [[4, 8]], "Input type": ["c10::BFloat16"]}


def eager(folder: Path, *, grid: int = 8) -> Path:
    events = [
        mark(0, 0, 300),
        frame("model.py(12): forward", 5, 280),
        op("aten::addmm", 10, 30, **ADDMM),
        launch(1, 20),
        kernel(1, 40, 50, GEMM, grid=[grid, 1, 1], block=[128, 1, 1]),
        op("aten::relu", 100, 20, **{"External id": 4, **SIZES}),
        launch(2, 105),
        kernel(2, 130, 30, RELU, grid=[2, 1, 1], block=[128, 1, 1]),
    ]
    return write(folder, text(events), "eager.json")


def replayed(folder: Path, *, launches: int = 1) -> Path:
    events = [mark(0, 0, 100 + 300 * launches)]
    for number in range(1, launches + 1):
        at = 300 * number - 280
        node = {"graph node id": 5, "block": [128, 1, 1]}
        events += [
            event("cuda_runtime", "cudaGraphLaunch", at, 10, correlation=number),
            kernel(number, at + 20, 50, GEMM, **node, grid=[8, 1, 1]),
            kernel(number, at + 80, 30, RELU, **node, grid=[2, 1, 1]),
        ]
    return write(folder, text(events), "graph.json")


def codes(diagnosis: Diagnosis) -> set[str]:
    return {note.code for note in diagnosis.notes}


@pytest.mark.parametrize("launches", [1, 3])
def test_kernels_of_a_graph_get_operators_lines_and_costs(tmp_path: Path, launches: int) -> None:
    without = boundby.load(replayed(tmp_path, launches=launches))
    assert not any(row.flops for row in without.ops)
    found = boundby.load(replayed(tmp_path, launches=launches), capture=eager(tmp_path))
    rows = {row.name: row for row in found.ops}
    assert rows["aten::addmm"].count == launches
    assert rows["aten::addmm"].flops == launches * 2 * 4 * 16 * 8
    assert rows["aten::relu"].where == "model.py:12"
    assert "capture-differs" not in codes(found)


def test_a_kernel_on_another_grid_gets_the_line_and_not_the_sizes(tmp_path: Path) -> None:
    found = boundby.load(replayed(tmp_path), capture=eager(tmp_path, grid=16))
    rows = {row.name: row for row in found.ops}
    assert rows[GEMM].flops is None
    assert rows[GEMM].where == "model.py:12"
    assert "capture-differs" in codes(found)


def test_unused_capture_is_reported_for_a_step_without_graphs(tmp_path: Path) -> None:
    trace = eager(tmp_path)
    assert "capture-not-used" in codes(boundby.load(trace, capture=trace))


def test_capture_without_operators_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(BoundbyError, match="no operators that launch kernels"):
        boundby.load(eager(tmp_path), capture=replayed(tmp_path))


def captured(folder: Path, *, launches: int = 2) -> Path:
    """A trace in which a graph is captured: its launches run nothing."""
    events = [mark(0, 0, 300), launch(1, 1, "cudaStreamBeginCapture")]
    events += [op("aten::addmm", 10, 30, **ADDMM), launch(2, 20)]
    for number in range(1, launches):
        events += [op("mylib::activate", 50 * number, 20, **SIZES), launch(2 + number, 50 * number)]
    events += [launch(9, 250, "cudaStreamEndCapture"), op("aten::add", 260, 20), launch(10, 262)]
    return write(folder, text([*events, kernel(10, 270, 5, RELU)]), "captured.json")


@pytest.mark.parametrize("times", [1, 3])
def test_replay_with_as_many_kernels_as_its_capture_is_matched_in_order(
    tmp_path: Path, times: int
) -> None:
    """No class of kernels follows from the name of an operator of another library."""
    found = boundby.load(replayed(tmp_path, launches=times), capture=captured(tmp_path))
    counts = {row.name: row.count for row in found.ops}
    assert counts == {"aten::addmm": times, "mylib::activate": times}
    assert "capture-differs" not in codes(found)
    other = boundby.load(replayed(tmp_path), capture=captured(tmp_path, launches=3))
    assert "mylib::activate" not in {row.name for row in other.ops}


def test_capture_beside_a_trace_is_no_rank(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    replayed(folder)
    captured(folder)
    found = boundby.load(folder)
    assert not found.ranks
    text = next(note.text for note in found.notes if note.code == "other-files")
    assert "captured.json" in text and "--capture" in text
    alone = boundby.load(folder / "captured.json")
    assert "graph-captured" in codes(alone) and "other-files" not in codes(alone)
