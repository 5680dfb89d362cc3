"""The phases of steps, and the host's pace between them, on a clock that the test moves."""

from boundby.capture.process.plan import Plan
from boundby.capture.process.windows import Window
from boundby.capture.torch.phases import usual_phases
from tests.capture.runs import MS, Run


def test_clean_steps_are_timed_by_phase_without_a_sync() -> None:
    run = Run(Plan(warmup=1, clean=2, issue=1))
    run.steps(10)
    synced = run.device.syncs
    for forward_ms, backward_ms in ((3, 5), (2, 4)):
        run.windows.phase_changed("forward")
        run.clock.now += forward_ms * MS
        run.windows.phase_changed("backward")
        run.clock.now += backward_ms * MS
        run.windows.phase_changed("other")
        run.steps(1)
    assert run.windows.steady == [
        {"other": 1 * MS, "forward": 3 * MS, "backward": 5 * MS},
        {"other": 1 * MS, "forward": 2 * MS, "backward": 4 * MS},
    ]
    assert run.device.syncs == synced + 2  # behind the last clean step, before the issue step


def test_phase_time_is_smaller_of_issue_and_clean_time() -> None:
    issue = [{"forward": 15.0, "backward": 21.0}, {"forward": 17.0, "backward": 22.0}]
    steady = [{"forward": 12.0, "backward": 30.0}] * 3
    assert usual_phases(issue, steady) == {"forward": 12.0, "backward": 21.5}
    assert usual_phases(issue, []) == {"forward": 16.0, "backward": 21.5}
    assert usual_phases([], steady) == {}


def test_phases_are_timed_from_an_idle_device() -> None:
    """The host takes 1, 2 and 3 ms; the device would take 50 after each."""
    run = Run(Plan(warmup=1, clean=1, issue=1))
    run.steps(10, 10)
    for phase, ms in (("forward", 4), ("backward", 1), ("other", 2), ("optimizer", 3)):
        run.clock.now += ms * MS
        run.windows.phase_changed(phase)
        run.device.queued = 50 * MS
    run.clock.now += 5 * MS
    run.windows.step_ended("train")
    (times,) = run.windows.issue
    # Before the first call the data is fetched; after the optimizer nothing else was named.
    assert {name: ns / MS for name, ns in times.items()} == {
        "other": 4 + 3,
        "forward": 1,
        "backward": 2,
        "optimizer": 5,
    }


def test_forward_without_modules_is_forward_phase() -> None:
    run = Run(Plan(warmup=1, clean=1, issue=1))
    run.steps(10, 10)
    run.clock.now += 4 * MS
    run.windows.phase_changed("backward")
    run.clock.now += 2 * MS
    run.windows.step_ended("train")
    assert run.windows.issue == [{"forward": 4 * MS, "backward": 2 * MS}]


def test_repeated_calls_in_one_phase_do_not_wait_for_the_device() -> None:
    run = Run(Plan(warmup=1, clean=1, issue=1))
    run.steps(10, 10)
    before = run.device.syncs
    for _ in range(10):
        run.windows.phase_changed("forward")
    assert run.device.syncs == before + 1


def test_host_speed_is_sampled_between_steps_but_not_clean_ones() -> None:
    looks: list[Window] = []
    run = Run(Plan(warmup=3, clean=4, issue=2, profiled=2), look=looks.append)
    run.steps(*[10.0] * 14)
    assert run.window() is Window.DONE
    assert looks == [Window.WARMUP] * 3 + [Window.ISSUE] * 4


def test_host_speed_sample_is_not_part_of_a_step() -> None:
    def look(_: Window) -> None:
        run.clock.now += 5 * MS

    run = Run(Plan(warmup=3, clean=4, issue=2, profiled=2), look=look)
    run.steps(*[10.0] * 9)
    assert {sample.ns for sample in run.windows.warmup} == {10 * MS}
    assert all(sum(step.values()) == 10 * MS for step in run.windows.issue)
