"""Replayed steps small enough to work out by hand, and the seeds' truths on made-up ones."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from boundby import faults
from boundby.analysis.account import attribute_step
from boundby.analysis.verdict import find_verdict
from boundby.diagnosis.host import cpu_contention
from boundby.model import DeviceKind, HostKind, OpCall, Timeline
from boundby.model.host_counters import HostCounters, ThreadTime
from boundby.model.observation import Observation, ObservedDevice, Settings
from boundby.step.build import build_step_model
from boundby.step.cpu_step import CpuWait
from boundby.step.model import Edit, HostTime, StepModel
from boundby.step.simulator import (
    LaunchSequence,
    build_launch_sequence,
    explaining_host,
    issue_ns,
    replay,
    simulated_timeline,
    with_clean_phases,
    with_host,
)
from tests.machines import round_machine
from tests.timelines import US, Scene, tensor

MACHINE = round_machine()


def loop(
    host_us: list[float],
    device_us: list[float],
    *,
    waits: tuple[int, ...] = (),
    streams: list[int] | None = None,
) -> LaunchSequence:
    """One launch per piece of device work; no latency, no gaps."""
    count = len(host_us)
    return LaunchSequence(
        host_ns=np.array(host_us, np.float64) * US,
        wait=np.array([int(i in waits) for i in range(count)], np.int8),
        phase=np.ones(count, np.int8),
        first=np.arange(count + 1),
        after_ns=0.0,
        device_ns=np.array(device_us, np.float64) * US,
        stream=np.array(streams or [0] * count),
        depends=np.full(count, -1),
        order=np.arange(count),
        latency_ns=0.0,
        gap_ns=0.0,
    )


def test_fast_device_waits_for_the_host() -> None:
    assert replay(loop([10, 10, 10], [2, 2, 2])) == pytest.approx(30 * US)


def test_host_that_runs_ahead_costs_nothing() -> None:
    assert replay(loop([1, 1, 1], [20, 20, 20])) == pytest.approx(60 * US)


def test_wall_is_the_longer_of_host_and_device_not_their_sum() -> None:
    host, device = [5.0] * 20, [4.0] * 20
    assert replay(loop(host, device)) == pytest.approx(max(sum(host), sum(device)) * US)


def test_kernels_that_overlap_end_one_after_the_other() -> None:
    closer = replace(loop([1, 1, 1], [20, 20, 20]), gap_ns=-2 * US)
    assert replay(closer) == pytest.approx(54 * US)
    # One that is shorter than that ends with the one before it.
    short = replace(loop([1, 1, 1], [20, 1, 20]), gap_ns=-2 * US)
    assert replay(short) == pytest.approx((18 + 18) * US)


def test_sync_adds_host_and_device_time() -> None:
    # 10 us to issue, 30 us of work, and the host waits for it before it goes on.
    assert replay(loop([10], [30], waits=(0,))) == pytest.approx(40 * US)


def test_streams_run_in_parallel() -> None:
    assert replay(loop([1, 1], [50, 50], streams=[0, 1])) == pytest.approx(50 * US, rel=0.05)


def test_work_waits_for_what_it_depends_on() -> None:
    together = loop([1, 1], [50, 50], streams=[0, 1])
    chained = replace(together, depends=np.array([-1, 0]))
    assert replay(chained) >= replay(together)
    assert issue_ns(chained) == pytest.approx(2 * US)


def test_the_launch_queue_is_finite() -> None:
    """A host far ahead is held back, so that its issue time says nothing of its own cost."""
    count = 3000
    script = loop([0.1] * count, [10.0] * count)
    assert issue_ns(script) > 1000 * 10 * US


def test_host_times_are_scaled_to_clean_phases() -> None:
    script = loop([30, 30], [5, 5])  # profiled: 60 us to issue
    clean = with_clean_phases(script, {"forward": 24.0 * US})
    assert issue_ns(clean) == pytest.approx(24 * US, rel=1e-3)
    assert replay(clean) == pytest.approx(24 * US, rel=1e-3)


def test_host_speed_explains_a_host_bound_step() -> None:
    """20 launches of 10 us, timed at another moment than the step, which took a tenth longer."""
    script = loop([10.0] * 20, [4.0] * 20)
    factor = explaining_host(script, 220 * US)
    assert factor is not None and factor == pytest.approx(1.1)
    assert replay(with_host(script, factor)) == pytest.approx(220 * US)


def test_host_speed_does_not_explain_a_device_bound_or_different_step() -> None:
    assert explaining_host(loop([4.0] * 20, [10.0] * 20), 220 * US) is None
    assert explaining_host(loop([10.0] * 20, [4.0] * 20), 500 * US) is None
    assert explaining_host(loop([10.0] * 20, [4.0] * 20), 90 * US) is None
    # Neck and neck: with a faster host the device would take as long.
    even = loop([10.0] * 20, [10.0] * 20)
    assert replay(with_host(even, 0.7)) == pytest.approx(replay(even), rel=0.02)
    assert explaining_host(even, replay(even)) is None


def test_a_phase_that_waits_in_the_middle_is_scaled_by_its_host_time_alone() -> None:
    script = loop([30, 30], [50, 5], waits=(0,))
    clean = with_clean_phases(script, {"forward": 70.0 * US})  # 50 of them waiting for the device
    assert clean.host_ns.sum() == pytest.approx(20 * US, rel=1e-2)


def test_phase_with_a_full_queue_gives_no_host_speed() -> None:
    """2000 kernels of 10 us: from an idle device the host is held up after a thousand."""
    count = 2000
    both = loop([30.0] * 100 + [30.0] * count, [1.0] * 100 + [10.0] * count)
    phase = np.array([1] * 100 + [2] * count, np.int8)
    script = replace(both, phase=phase)
    held_up = issue_ns(replace(loop([3.0] * count, [10.0] * count)))
    clean = with_clean_phases(script, {"forward": 100 * 3.0 * US, "backward": held_up})
    assert held_up > 1.5 * count * 3.0 * US
    assert clean.host_ns.sum() == pytest.approx((100 + count) * 3.0 * US, rel=0.02)


def test_a_late_batch_of_the_profiled_step_does_not_lengthen_the_clean_one() -> None:
    """Profiled, the step waited 100 us for its batch; clean, data and forward together take 50."""
    waiting = replace(loop([110, 20, 20], [5, 5, 5]), data_ns=np.array([100.0 * US, 0, 0]))
    script = replace(waiting, phase=np.array([1, 1, 2], np.int8))
    clean = with_clean_phases(
        script, {"other": 40.0 * US, "forward": 10.0 * US, "backward": 10_000}
    )
    assert clean.host_ns.tolist() == pytest.approx([40 * US, 10 * US, 10 * US], rel=1e-3)
    assert clean.data_ns[0] == pytest.approx(35 * US, rel=1e-3)
    assert replay(clean) == pytest.approx(60 * US, rel=1e-3)


def test_wait_for_data_that_fits_is_unchanged() -> None:
    waiting = replace(loop([30, 20], [5, 5]), data_ns=np.array([20.0 * US, 0]))
    clean = with_clean_phases(waiting, {"forward": 35.0 * US})
    assert clean.data_ns.tolist() == [20 * US, 0]
    assert replay(clean) == pytest.approx(35 * US, rel=1e-3)


def scene_of(rows: list[tuple[OpCall, float]], *, host_us: float) -> Scene:
    """Operators launched `host_us` apart, each with one kernel of the given time."""
    scene = Scene()
    clock, free = 0.0, 0.0
    for call, device_us in rows:
        scene.on_host(clock, clock + host_us, call=call)
        launch = scene.on_host(clock + host_us - 1, clock + host_us, HostKind.LAUNCH, "launch")
        clock += host_us
        begin = max(free, clock)
        scene.on_device(begin, begin + device_us, launch=launch)
        free = begin + device_us
    scene.end = max(clock, free)
    return scene


def test_small_operators_of_a_cpu_have_no_gaps_between_them() -> None:
    scene = Scene(end=510)
    call = scene.on_host(0, 10, HostKind.OP, "call")
    for at in range(500):
        scene.on_device(10 + at, 11 + at, launch=call)
    for kind, simulated_us in (("cpu", 510), ("cuda", 1060)):
        timeline = msgspec.structs.replace(scene.timeline(), device_kind=kind)
        sequence = build_launch_sequence(timeline)
        assert replay(sequence) == pytest.approx(simulated_us * US, rel=0.03)


def test_operators_that_a_profiler_slows_are_simulated_as_in_the_clean_step() -> None:
    """A CPU's program of 1000 us in the profile, of a clean step of 505 us."""
    scene = Scene(end=1010)
    scene.on_device(10, 1010, launch=scene.on_host(0, 10, HostKind.OP, "call"))
    for kind, simulated_us in (("cpu", 505), ("cuda", 1000)):
        timeline = msgspec.structs.replace(scene.timeline(), device_kind=kind)
        model = step_model_of(timeline, wall_ns=505.0 * US)
        assert model.base_ns == pytest.approx(simulated_us * US, rel=0.03)


def _on_shared_cores(scene: Scene, threads: int | None) -> StepModel:
    timeline = msgspec.structs.replace(scene.timeline(), device_kind="cpu")
    wall = float(timeline.wall_ns)
    return build_step_model(
        timeline,
        MACHINE,
        attribute_step(timeline, MACHINE, wall_ns=wall),
        wall_ns=wall,
        phases={},
        observation=Observation(
            source="jax",
            framework="jax",
            device=ObservedDevice(kind="cpu"),
            settings=Settings(threads=threads),
        ),
    )


@pytest.mark.parametrize(("threads", "saved_us"), [(1, 300), (2, 150), (None, 0)])
def test_hidden_host_time_takes_its_share_of_the_cores(threads: int | None, saved_us: int) -> None:
    """A program of 1000 us; meanwhile the host takes 300 us for Python."""
    scene = Scene(end=1010)
    call = scene.on_host(0, 10, HostKind.OP, "call")
    scene.on_device(10, 1010, launch=call)
    scene.on_host(10, 310, HostKind.PYTHON, "python")
    model = _on_shared_cores(scene, threads)
    less = Edit.save_host(HostTime(before_ns=np.zeros(1), after_ns=300.0 * US))
    assert model.base_ns - model.evaluate(less) == pytest.approx(saved_us * US)
    assert model.apply(less).evaluate(Edit()) == pytest.approx(model.evaluate(less))


@pytest.mark.parametrize(("threads", "saved_us"), [(1, 0), (2, 150), (None, 300)])
def test_host_time_behind_operators_needs_a_core_where_it_no_longer_waits(
    threads: int | None, saved_us: int
) -> None:
    """A program of 1000 us that the host waits for, and 300 us of Python after it."""
    scene = Scene(end=1310)
    call = scene.on_host(0, 10, HostKind.OP, "call")
    scene.on_device(10, 1010, launch=call)
    scene.on_host(10, 1010, HostKind.SYNC, "wait")
    scene.on_host(1010, 1310, HostKind.PYTHON, "python")
    model = _on_shared_cores(scene, threads)
    waits = np.flatnonzero(model.launches.wait != 0)
    assert model.saving(Edit.drop_waits(waits)) == pytest.approx(saved_us * US, abs=20 * US)


@pytest.mark.parametrize(("threads", "saved_us"), [(1, 300), (2, 150), (None, 0)])
def test_a_stated_saving_that_operators_hide_takes_its_share_of_the_cores(
    threads: int | None, saved_us: int
) -> None:
    """A program of 1000 us."""
    scene = Scene(end=1010)
    call = scene.on_host(0, 10, HostKind.OP, "call")
    scene.on_device(10, 1010, launch=call)
    model = _on_shared_cores(scene, threads)
    less = Edit.save_step(300.0 * US)
    assert model.base_ns - model.evaluate(less) == pytest.approx(saved_us * US)
    assert model.apply(less).evaluate(Edit()) == pytest.approx(model.evaluate(less))


PRODUCT = OpCall(
    name="aten::mm",
    args=(tensor(4096, 4096, dtype="bfloat16"), tensor(4096, 4096, dtype="bfloat16")),
)
GELU = OpCall(name="aten::gelu", args=(tensor(64, 1_000_000), None))


def step_model_of(
    timeline: Timeline, wall_ns: float, in_phases_ns: float | None = None
) -> StepModel:
    attribution = attribute_step(timeline, MACHINE, wall_ns=wall_ns)
    return build_step_model(
        timeline, MACHINE, attribution, wall_ns=wall_ns, phases={}, in_phases_ns=in_phases_ns
    )


def test_cpu_wait_shrinks_with_removed_work() -> None:
    """Of 1000 us 400 are waiting for a core: 120 us of work less are 200 less on the clock."""
    scene = Scene(end=1000)
    scene.on_host(0, 1000, call=GELU)
    timeline = scene.timeline()
    attribution = attribute_step(
        timeline, MACHINE, wall_ns=1000 * US, cpu_wait=CpuWait(clean_ns=400 * US, profiled_ns=0.0)
    )
    (work,) = attribution.op_records
    slower = cpu_contention(attribution, HostCounters(), 1000 * US)
    step_model = build_step_model(
        timeline, MACHINE, attribution, wall_ns=1000 * US, phases={}, cpu_contention=slower
    )
    shorter = Edit(op_ns={0: work.ns - 120 * US})
    assert step_model.saving(shorter) == pytest.approx(200 * US)
    # Waiting for a core is not a property of the step: the speed-up is that of the other 600 us.
    assert find_verdict(step_model).verdict.if_free["overhead"] == pytest.approx(600 * US / work.ns)
    # What its own processes have of the cores they have anyway.
    workers = HostCounters(wall_ns=1e9, main=ThreadTime(ran_ns=6e8, delayed_ns=4e8), workers_ns=1e9)
    assert cpu_contention(attribution, workers, 1000 * US) == pytest.approx(1.0)


def gains(scene: Scene) -> dict[str, float]:
    timeline = scene.timeline()
    wall = float(timeline.wall_ns)
    return find_verdict(step_model_of(timeline, wall)).verdict.if_free


def test_faster_matmuls_do_not_help_a_memory_bound_step() -> None:
    free = gains(scene_of([(GELU, 120.0)] * 10 + [(PRODUCT, 140.0)], host_us=5))
    assert free["bandwidth"] > 3
    assert free["compute"] < 1.15


def test_faster_kernels_do_not_help_an_overhead_bound_step() -> None:
    free = gains(scene_of([(GELU, 120.0), (PRODUCT, 140.0)] * 5, host_us=400))
    assert free["overhead"] > 2
    assert free["compute"] < 1.05
    assert free["bandwidth"] < 1.05


def test_faster_compute_alone_helps_a_compute_bound_step() -> None:
    timeline = scene_of([(PRODUCT, 140.0)] * 8, host_us=5).timeline()
    wall = float(timeline.wall_ns)
    verdict_result = find_verdict(step_model_of(timeline, wall))
    assert verdict_result.verdict.bound_by == "compute"
    assert not verdict_result.verdict.uncertain
    assert abs(verdict_result.replay_error or 0.0) < 0.03


def test_simulation_far_from_the_clean_step_is_uncertain() -> None:
    timeline = scene_of([(PRODUCT, 140.0)] * 8, host_us=5).timeline()
    verdict_result = find_verdict(step_model_of(timeline, 2.0 * timeline.wall_ns))
    assert verdict_result.verdict.uncertain
    assert "shorter than the measured one" in verdict_result.verdict.why


@pytest.mark.parametrize(("took_us", "uncertain"), [(95.0, False), (65.0, True), (120.0, True)])
def test_cpu_step_is_the_sum_of_its_clean_phases(took_us: float, uncertain: bool) -> None:
    scene = Scene(end=100)
    scene.on_host(0, 90, call=PRODUCT)
    verdict_result = find_verdict(step_model_of(scene.timeline(), 100.0 * US, took_us * US))
    assert verdict_result.replay_error == pytest.approx(took_us / 100 - 1)
    assert verdict_result.verdict.uncertain is uncertain
    assert ("timed phase by phase" in verdict_result.verdict.why) is uncertain
    assert find_verdict(step_model_of(scene.timeline(), 100.0 * US)).replay_error is None


def test_step_of_the_timeline_is_simulated() -> None:
    scene = scene_of([(GELU, 20.0), (PRODUCT, 140.0)] * 6, host_us=50)
    script = build_launch_sequence(scene.timeline(), gap_ns=0.0)
    assert replay(script) == pytest.approx(scene.end * US, rel=0.1)
    assert len(script.device_ns) == 12


def test_events_are_moved_to_their_simulated_times() -> None:
    """Profiled, each launch takes 400 us and the device waits; clean, all three take 60 us."""
    timeline = scene_of([(PRODUCT, 138.0)] * 3, host_us=400).timeline()
    script = with_clean_phases(
        build_launch_sequence(timeline, gap_ns=1_000.0), {"forward": 60.0 * US}
    )
    moved = simulated_timeline(timeline, script)
    starts = np.sort(moved.device.start_ns)
    assert np.diff(starts) == pytest.approx([139 * US] * 2, abs=2)
    # From the end of the step before to the end of this one: three kernels and three gaps.
    assert moved.wall_ns == pytest.approx(3 * 139 * US, abs=3)
    assert moved.host.duration_ns.max() < 60 * US
    assert (np.diff(moved.host.start_ns) >= 0).all()


def test_idle_causes_follow_the_simulated_step() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 3, host_us=400).timeline()
    wall = 3 * 142.0 * US
    profiled = attribute_step(timeline, MACHINE, wall_ns=wall).account.overhead.parts
    clean = attribute_step(timeline, MACHINE, wall_ns=wall, phases={"forward": 60.0 * US})
    assert profiled["python"] > profiled["launch"]
    assert clean.account.overhead.parts["python"] == pytest.approx(0, abs=US)
    assert clean.account.overhead.parts["launch"] == pytest.approx(3 * 4 * US, rel=0.1)


def running_ahead(scene: Scene, kernels: int = 10, stream: int = 7) -> Scene:
    """A thread that issues work every 20 us, each of which takes 100."""
    for at in range(kernels):
        scene.on_host(20 * at, 20 * at + 8, call=GELU)
        launch = scene.on_host(20 * at + 6, 20 * at + 8, HostKind.LAUNCH, "launch")
        scene.on_device(10 + 100 * at, 110 + 100 * at, stream=stream, launch=launch)
    scene.end = 10 + 100 * kernels
    return scene


def test_sync_on_another_thread_does_not_block_launches() -> None:
    scene = running_ahead(Scene())
    alone = replay(build_launch_sequence(scene.timeline()))
    for at in range(10):
        scene.on_host(20 * at + 9, 20 * at + 14, HostKind.SYNC, "cudaStreamSynchronize", thread=2)
    beside = build_launch_sequence(scene.timeline())
    assert replay(beside) == pytest.approx(alone)
    assert not beside.wait.any()
    step_model = step_model_of(scene.timeline(), alone)
    assert all(finding.fault != "host-sync" for finding in faults.find([step_model]))


def test_long_sync_on_another_thread_does_not_block_launches() -> None:
    """A thread that saves what the device has made: it copies, and stands until that is here."""
    scene = running_ahead(Scene())
    alone = replay(build_launch_sequence(scene.timeline()))
    copy = scene.on_host(30, 32, HostKind.LAUNCH, "cudaMemcpyAsync", thread=2)
    scene.on_host(33, 230, HostKind.SYNC, "cudaStreamSynchronize", thread=2)
    scene.on_device(210, 220, DeviceKind.COPY_D2H, "Memcpy DtoH", stream=8, launch=copy)
    script = build_launch_sequence(scene.timeline())
    assert not script.wait.any()
    assert replay(script) == pytest.approx(alone, rel=0.01)


def test_sync_of_the_launching_thread_blocks_the_step() -> None:
    """Backward runs on its own thread, and its caller waits."""
    scene = Scene(end=260)
    for at, thread in enumerate((1, 1, 1, 2, 1)):
        begins = (0, 20, 40, 60, 200)[at]
        scene.on_host(begins, begins + 8, call=GELU, thread=thread)
        launch = scene.on_host(begins + 6, begins + 8, HostKind.LAUNCH, "launch", thread=thread)
        scene.on_device((10, 40, 70, 100, 210)[at], (40, 70, 100, 190, 250)[at], launch=launch)
    scene.on_host(70, 192, HostKind.SYNC, "cudaStreamSynchronize", thread=2)
    assert build_launch_sequence(scene.timeline()).wait.sum() == 1


def test_sync_waits_for_its_observed_kernel() -> None:
    """A copy on a stream of its own is here long before the other stream's backlog has ended."""
    scene = running_ahead(Scene())
    copy = scene.on_host(200, 202, HostKind.LAUNCH, "cudaMemcpyAsync")
    scene.on_host(203, 240, HostKind.SYNC, "cudaStreamSynchronize")
    scene.on_device(205, 237, DeviceKind.COPY_D2H, "Memcpy DtoH", stream=8, launch=copy)
    script = build_launch_sequence(scene.timeline(), gap_ns=0.0)
    assert script.wait.sum() == 1
    # 10 kernels of 100 us without launches behind them: not 1010 us and the host's 240 in addition.
    assert replay(script) == pytest.approx(1000 * US, rel=0.02)
    assert issue_ns(script) == pytest.approx(240 * US, rel=0.02)


def test_blocking_copy_waits_for_itself() -> None:
    scene = running_ahead(Scene())
    copy = scene.on_host(200, 240, HostKind.SYNC, "cudaMemcpyAsync")
    scene.on_device(205, 237, DeviceKind.COPY_H2D, "Memcpy HtoD", stream=8, launch=copy)
    assert issue_ns(build_launch_sequence(scene.timeline(), gap_ns=0.0)) == pytest.approx(
        240 * US, rel=0.05
    )


def test_sync_that_returns_at_once_waits_for_nothing() -> None:
    scene = running_ahead(Scene())
    scene.on_host(200, 203, HostKind.SYNC, "cudaEventSynchronize")
    assert issue_ns(build_launch_sequence(scene.timeline())) == pytest.approx(203 * US, rel=0.01)


def test_device_sync_waits_for_all_streams() -> None:
    scene = running_ahead(Scene())
    scene.on_host(200, 1012, HostKind.SYNC, "cudaDeviceSynchronize")
    scene.end = 1015
    script = build_launch_sequence(scene.timeline(), gap_ns=0.0)
    assert issue_ns(script) == pytest.approx(1012 * US, rel=0.01)


def test_launches_of_another_thread_during_a_sync_do_not_slow_the_host() -> None:
    """While one thread stands in a sync another issues a copy: the wait is none of its time."""
    scene = running_ahead(Scene(), kernels=3)
    scene.on_host(60, 314, HostKind.SYNC, "cudaStreamSynchronize")
    copy = scene.on_host(290, 295, HostKind.LAUNCH, "cudaMemcpyAsync", thread=2)
    scene.on_device(296, 300, DeviceKind.COPY_H2D, "Memcpy HtoD", stream=8, launch=copy)
    script = build_launch_sequence(scene.timeline())
    assert script.host_ns.sum() < 80 * US


def test_isolated_phase_does_not_wait_for_other_phases() -> None:
    """Forward's copy is awaited in the optimizer: from an idle device that costs the host alone."""
    step = loop([10, 10, 10], [50, 5, 5], waits=(1, 2), streams=[1, 0, 0])
    step = replace(step, until=np.array([-2, 0, 2]), phase=np.array([1, 3, 3], np.int8))
    assert issue_ns(step) == pytest.approx((10 + 50 + 10 + 5) * US)
    clean = with_clean_phases(step, {"forward": 10.0 * US, "optimizer": 15.0 * US})
    assert clean.host_ns.tolist() == pytest.approx([10 * US, 5 * US, 5 * US], rel=1e-3)


def test_nested_loaders_are_waited_for_once() -> None:
    scene = Scene()
    scene.on_host(0, 60, HostKind.DATA, "outer")
    scene.on_host(5, 55, HostKind.PYTHON, "collate")
    scene.on_host(10, 50, HostKind.DATA, "inner")
    launch = scene.on_host(70, 75, HostKind.LAUNCH, "launch")
    scene.on_device(80, 90, launch=launch)
    assert build_launch_sequence(scene.timeline()).data_ns.sum() == pytest.approx(60 * US)


def test_stream_that_falls_behind_decides_the_period_before_it_ends_last() -> None:
    # Per iteration the host takes 10, one stream 4 + 7; the other's work ends last at first.
    launches = loop([1, 5, 1], [4, 9, 7], streams=[0, 1, 0])
    launches = replace(launches, depends=np.array([-1, -1, 0]), after_ns=3.0 * US)
    assert replay(launches) == pytest.approx(11 * US)
