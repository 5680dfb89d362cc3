"""Kernels of a replayed graph, and the same kernels seen outside of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boundby.analysis.account import attribute_step
from boundby.capture import kineto
from boundby.model import Timeline
from tests.capture.kineto_events import ADDMM, Event, kernel, launch, mark, op, text, write
from tests.machines import round_machine

GRID: Event = {"grid": [8, 1, 1], "block": [128, 1, 1]}


def replayed(tmp_path: Path, **changed: Any) -> Timeline:
    """An eager step, then the same product replayed from a graph."""
    again: Event = {"graph id": 3, "graph node id": 7, **GRID, **changed}
    took = float(again.pop("took", 50.0))
    events = [
        mark(0, 0, 100),
        op("aten::addmm", 15, 30, **ADDMM),
        launch(101, 20),
        kernel(101, 40, 50, **GRID),
        mark(1, 100, 100),
        launch(102, 120, "cudaGraphLaunch"),
        kernel(102, 130, took, **again),
    ]
    trace = kineto.read(write(tmp_path, text(events)))
    return trace.timeline(1)


def test_kernel_in_graph_costs_as_much_as_outside(tmp_path: Path) -> None:
    timeline = replayed(tmp_path)
    assert timeline.device.graph.all() and timeline.device.call is not None
    (work,) = attribute_step(timeline, round_machine(), wall_ns=float(timeline.wall_ns)).op_records
    assert work.name == "aten::addmm"
    # 4 x 16 times 16 x 8: 2 * 4 * 16 * 8 operations, and the bias added.
    assert work.cost is not None
    assert work.cost.flops["matmul.bfloat16"] == pytest.approx(2 * 4 * 16 * 8)


@pytest.mark.parametrize("other", [{"grid": [9, 1, 1]}, {"took": 90.0}])
def test_kernel_with_another_grid_or_time_is_not_matched(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    timeline = replayed(tmp_path, **other)
    (work,) = attribute_step(timeline, round_machine(), wall_ns=float(timeline.wall_ns)).op_records
    assert work.bound == "unknown" and work.cost is None
