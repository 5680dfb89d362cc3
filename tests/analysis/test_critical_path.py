import pytest

from boundby.analysis.account import attribute_step
from boundby.analysis.critical_path import critical_path_rows, slack_rows
from boundby.model import HostKind, OpCall
from boundby.step.simulator import build_launch_sequence, replay
from tests.machines import round_machine
from tests.timelines import US, Scene, tensor


def test_critical_path_is_summed_by_operator_and_host_line() -> None:
    scene = Scene(end=170)
    call = OpCall(name="aten::relu", args=(tensor(1000),))
    for start in (0, 60):
        scene.on_host(start, start + 12, call=call)
        launch = scene.on_host(start + 5, start + 10, HostKind.LAUNCH, "cudaLaunchKernel")
        scene.on_device(start + 10, start + 50, launch=launch)
        scene.on_host(start + 12, start + 52, HostKind.SYNC, "cudaStreamSynchronize")
    timeline = scene.timeline()
    machine = round_machine()
    attribution = attribute_step(timeline, machine, wall_ns=float(timeline.wall_ns))
    launches = build_launch_sequence(timeline)
    rows = critical_path_rows(launches, timeline, attribution)
    assert sum(row.ns for row in rows) == pytest.approx(replay(launches))
    assert sum(row.share for row in rows) == pytest.approx(1)
    (kernels,) = (row for row in rows if row.kind == "kernel")
    assert (kernels.what, kernels.count, kernels.ns) == ("aten::relu", 2, 80 * US)
    assert {row.kind for row in rows} >= {"kernel", "host"}


def test_work_off_the_path_has_the_least_slack_of_its_calls() -> None:
    scene = Scene(end=400)
    call = OpCall(name="aten::relu", args=(tensor(1000),))
    for start, length in ((0, 5), (100, 20), (200, 5)):
        scene.on_host(start, start + 12, call=call)
        launch = scene.on_host(start + 5, start + 10, HostKind.LAUNCH, "cudaLaunchKernel")
        scene.on_device(start + 10, start + 10 + length, launch=launch)
    timeline = scene.timeline()
    attribution = attribute_step(timeline, round_machine(), wall_ns=float(timeline.wall_ns))
    launches = build_launch_sequence(timeline, gap_ns=0.0)
    # The last kernel ends the step.
    (row,) = slack_rows(launches, timeline, attribution)
    assert (row.what, row.count) == ("aten::relu", 2)
    assert row.slack_ns == pytest.approx(80 * US)
