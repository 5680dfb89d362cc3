"""Replayed steps small enough to work out by hand, and the seeds' truths on made-up ones."""

from dataclasses import replace

import numpy as np
import pytest

from boundby.account import account_for
from boundby.model import HostKind, OpCall, Timeline
from boundby.picture import Picture
from boundby.replay import (
    Script,
    issue_ns,
    replay,
    retimed,
    script_of,
    with_clean_phases,
)
from boundby.verdict import judge
from tests.machines import round_machine
from tests.timelines import US, Scene, tensor

MACHINE = round_machine()


def loop(
    host_us: list[float],
    device_us: list[float],
    *,
    waits: tuple[int, ...] = (),
    streams: list[int] | None = None,
) -> Script:
    """One launch per piece of device work; no latency, no gaps."""
    count = len(host_us)
    return Script(
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


def test_a_device_that_keeps_up_waits_for_the_host() -> None:
    assert replay(loop([10, 10, 10], [2, 2, 2])) == pytest.approx(30 * US)


def test_a_host_that_runs_ahead_is_free() -> None:
    assert replay(loop([1, 1, 1], [20, 20, 20])) == pytest.approx(60 * US)


def test_wall_is_the_longer_of_host_and_device_not_their_sum() -> None:
    host, device = [5.0] * 20, [4.0] * 20
    assert replay(loop(host, device)) == pytest.approx(max(sum(host), sum(device)) * US)


def test_a_sync_adds_them_up() -> None:
    # 10 us to issue, 30 us of work, and the host waits for it before it goes on.
    assert replay(loop([10], [30], waits=(0,))) == pytest.approx(40 * US)


def test_streams_run_side_by_side() -> None:
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


def test_host_times_are_brought_to_the_clean_phases_not_to_the_wall() -> None:
    script = loop([30, 30], [5, 5])  # profiled: 60 us to issue
    clean = with_clean_phases(script, {"forward": 24.0 * US})
    assert issue_ns(clean) == pytest.approx(24 * US, rel=1e-3)
    assert replay(clean) == pytest.approx(24 * US, rel=1e-3)


def test_a_phase_that_waits_in_the_middle_is_scaled_by_its_host_time_alone() -> None:
    script = loop([30, 30], [50, 5], waits=(0,))
    clean = with_clean_phases(script, {"forward": 70.0 * US})  # 50 of them waiting for the device
    assert clean.host_ns.sum() == pytest.approx(20 * US, rel=1e-2)


def test_a_phase_that_fills_the_queue_says_nothing_of_the_host() -> None:
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


def test_a_wait_for_data_that_fits_is_left_as_it_is() -> None:
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


PRODUCT = OpCall(
    name="aten::mm",
    args=(tensor(4096, 4096, dtype="bfloat16"), tensor(4096, 4096, dtype="bfloat16")),
)
GELU = OpCall(name="aten::gelu", args=(tensor(64, 1_000_000), None))


def picture_of(timeline: Timeline, wall_ns: float) -> Picture:
    accounted = account_for(timeline, MACHINE, wall_ns=wall_ns)
    return Picture(timeline, MACHINE, accounted, wall_ns=wall_ns, phases={})


def gains(scene: Scene) -> dict[str, float]:
    timeline = scene.timeline()
    wall = float(timeline.wall_ns)
    return judge(picture_of(timeline, wall)).verdict.if_free


def test_faster_matmuls_do_not_help_a_memory_bound_step() -> None:
    free = gains(scene_of([(GELU, 120.0)] * 10 + [(PRODUCT, 140.0)], host_us=5))
    assert free["bandwidth"] > 3
    assert free["compute"] < 1.15


def test_faster_kernels_do_not_help_an_overhead_bound_step() -> None:
    free = gains(scene_of([(GELU, 120.0), (PRODUCT, 140.0)] * 5, host_us=400))
    assert free["overhead"] > 2
    assert free["compute"] < 1.05
    assert free["bandwidth"] < 1.05


def test_a_compute_bound_step_is_helped_by_compute_alone() -> None:
    timeline = scene_of([(PRODUCT, 140.0)] * 8, host_us=5).timeline()
    wall = float(timeline.wall_ns)
    judged = judge(picture_of(timeline, wall))
    assert judged.verdict.bound_by == "compute"
    assert not judged.verdict.uncertain
    assert abs(judged.replay_error or 0.0) < 0.03


def test_a_replay_far_from_the_clean_step_is_uncertain() -> None:
    timeline = scene_of([(PRODUCT, 140.0)] * 8, host_us=5).timeline()
    judged = judge(picture_of(timeline, 2.0 * timeline.wall_ns))
    assert judged.verdict.uncertain
    assert "off the clean step" in judged.verdict.why


def test_the_timelines_own_step_is_replayed() -> None:
    scene = scene_of([(GELU, 20.0), (PRODUCT, 140.0)] * 6, host_us=50)
    script = script_of(scene.timeline(), gap_ns=0.0)
    assert replay(script) == pytest.approx(scene.end * US, rel=0.1)
    assert len(script.device_ns) == 12


def test_events_are_moved_to_where_the_replay_has_them() -> None:
    """Profiled, each launch takes 400 us and the device waits; clean, all three take 60 us."""
    timeline = scene_of([(PRODUCT, 138.0)] * 3, host_us=400).timeline()
    script = with_clean_phases(script_of(timeline, gap_ns=1_000.0), {"forward": 60.0 * US})
    moved = retimed(timeline, script)
    starts = np.sort(moved.device.start_ns)
    assert np.diff(starts) == pytest.approx([139 * US] * 2, abs=2)
    # From the end of the step before to the end of this one: three kernels and three gaps.
    assert moved.wall_ns == pytest.approx(3 * 139 * US, abs=3)
    assert moved.host.duration_ns.max() < 60 * US
    assert (np.diff(moved.host.start_ns) >= 0).all()


def test_idle_time_is_named_by_the_replayed_step_not_by_the_profiled_one() -> None:
    timeline = scene_of([(PRODUCT, 138.0)] * 3, host_us=400).timeline()
    wall = 3 * 142.0 * US
    profiled = account_for(timeline, MACHINE, wall_ns=wall).account.overhead.parts
    clean = account_for(timeline, MACHINE, wall_ns=wall, phases={"forward": 60.0 * US})
    assert profiled["python"] > profiled["launch"]
    assert clean.account.overhead.parts["python"] == pytest.approx(0, abs=US)
    assert clean.account.overhead.parts["launch"] == pytest.approx(3 * 4 * US, rel=0.1)
