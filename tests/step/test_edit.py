"""Edits as values, and what they mean to a device step and to a CPU step."""

import numpy as np
import pytest

from boundby.analysis.account import attribute_step
from boundby.model import HostKind
from boundby.step.build import build_step_model
from boundby.step.cpu import CpuStep
from boundby.step.device import DeviceStep
from boundby.step.edit import Edit, HostTime
from boundby.step.simulator import build_launch_sequence
from tests.faults.step_models import step_model_of
from tests.machines import round_machine
from tests.step.test_replay import GELU, scene_of
from tests.timelines import US, Scene


def host_bound_step() -> DeviceStep:
    """Ten kernels of 10 us, launched 100 us apart."""
    step = step_model_of(scene_of([(GELU, 10.0)] * 10, host_us=100).timeline())
    assert isinstance(step, DeviceStep)
    return step


def cpu_step() -> CpuStep:
    """Ten operators of 100 us, one after the other."""
    scene = Scene(end=1000)
    for at in range(10):
        scene.on_host(100 * at, 100 * (at + 1), call=GELU)
    step = step_model_of(scene.timeline())
    assert isinstance(step, CpuStep)
    return step


def test_later_edit_wins_where_both_set_a_time() -> None:
    one = Edit.set_time({0: 5.0, 1: 6.0}) + Edit.save_step(10.0) + Edit.drop_waits([1])
    both = one + Edit.set_time({1: 7.0}) + Edit.save_step(5.0) + Edit.drop_waits([2])
    assert both.op_ns == {0: 5.0, 1: 7.0}
    assert both.saved_ns == 15.0
    assert both.dropped_waits == {1, 2}


def test_host_times_add_with_and_without_actions() -> None:
    before = HostTime(before_ns=np.array([1.0, 2.0]), after_ns=3.0)
    assert (before + HostTime(after_ns=4.0)).ns == 10.0
    assert (before + before * 2).ns == 18.0


def test_removing_an_operator_drops_its_launch_on_a_device() -> None:
    step = host_bound_step()
    saved = step.evaluate(Edit()) - step.evaluate(Edit.remove([4]))
    assert saved == pytest.approx(100 * US)
    assert step.evaluate(Edit.set_time({4: 0.0})) == pytest.approx(step.base_ns)


def test_removing_an_operator_drops_its_dispatch_on_a_cpu() -> None:
    step = cpu_step()
    dispatch = step.machine.overheads.eager_op_ns
    assert dispatch is not None
    alone = step.evaluate(Edit()) - step.evaluate(Edit.set_time({4: 0.0}))
    assert step.evaluate(Edit()) - step.evaluate(Edit.remove([4])) == pytest.approx(
        alone + dispatch
    )


def test_applied_edit_equals_its_evaluation() -> None:
    for step in (host_bound_step(), cpu_step()):
        edit = Edit.remove([1, 2]) + Edit.add_host([5], 20e3) + Edit.save_step(7e3)
        assert step.apply(edit).evaluate(Edit()) == pytest.approx(step.evaluate(edit))


def test_a_dropped_wait_lets_the_host_run_ahead() -> None:
    scene = scene_of([(GELU, 300.0)] * 4, host_us=100)
    scene.on_host(scene.end - 10, scene.end, HostKind.SYNC, "cudaStreamSynchronize")
    step = step_model_of(scene.timeline())
    waits = np.flatnonzero(step.launches.wait)
    assert len(waits) == 1
    assert step.evaluate(Edit.drop_waits(waits)) < step.evaluate(Edit())


def test_a_cpu_step_has_no_launches_and_no_actions() -> None:
    step = cpu_step()
    assert not len(step.launches.host_ns)
    assert not len(step.actions_of(range(10)))
    assert step.evaluate(Edit.drop_waits([0])) == step.base_ns


def test_host_edits_of_an_estimated_step_do_not_make_its_kernels_overlap() -> None:
    """Two kernels on two streams, with a sync between them: the device is idle for 20 us."""
    scene = Scene(end=120)
    first = scene.on_host(0, 5, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_host(5, 60, HostKind.SYNC, "cudaStreamSynchronize")
    second = scene.on_host(60, 65, HostKind.LAUNCH, "cudaLaunchKernel")
    scene.on_device(10, 60, launch=first, stream=7)
    scene.on_device(70, 120, launch=second, stream=8)
    timeline, machine = scene.timeline(), round_machine()
    wall = float(timeline.wall_ns)
    attribution = attribute_step(timeline, machine, wall_ns=wall)
    launches = build_launch_sequence(timeline)
    step = build_step_model(
        timeline, machine, attribution, wall_ns=wall, phases={}, launches=launches
    )
    dropped = Edit.drop_waits(np.flatnonzero(launches.wait))
    assert step.saving(dropped) == pytest.approx(20 * US)
    shorter = Edit.set_time({0: step.op_records[0].ns / 2})
    assert step.saving(dropped + shorter) > 25 * US
