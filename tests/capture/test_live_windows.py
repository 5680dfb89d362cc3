"""The windows of a run, on a clock that the test moves."""

import itertools
from collections.abc import Callable

import pytest

from boundby.capture.live.phases import usual_phases
from boundby.capture.live.plan import Plan, plan_of
from boundby.capture.live.windows import Observer, Sample, Window, Windows, main_kind

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class FakeDevice:
    """Marks are times; work that was queued is done when waited for."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.queued = 0
        self.syncs = 0

    def mark(self) -> int:
        return self.clock.now

    def between(self, marks: list[int]) -> list[float]:
        return [float(later - earlier) for earlier, later in itertools.pairwise(marks)]

    def sync(self) -> None:
        self.syncs += 1
        self.clock.now += self.queued
        self.queued = 0


class FakeProfiler:
    def __init__(self, can_start: bool = True) -> None:
        self.calls: list[str] = []
        self.can_start = can_start

    def start(self) -> bool:
        self.calls.append("start")
        return self.can_start

    def step(self) -> None:
        self.calls.append("step")

    def stop(self) -> None:
        self.calls.append("stop")


class Run:
    def __init__(
        self,
        plan: Plan,
        *,
        can_profile: bool = True,
        observer: Observer | None = None,
        look: Callable[[Window], None] = lambda _: None,
    ) -> None:
        self.clock = Clock()
        self.device = FakeDevice(self.clock)
        self.profiler = FakeProfiler(can_profile)
        self.done = 0
        self.windows = Windows(
            plan, self.device, self.profiler, self._end, self.clock, observer=observer, look=look
        )

    def _end(self) -> None:
        self.done += 1

    def steps(self, *times_ms: float, kind: str = "train") -> None:
        for time_ms in times_ms:
            self.clock.now += int(time_ms * MS)
            self.windows.step_ended(kind)

    def window(self) -> Window:
        return self.windows.window


def test_warm_up_ends_when_three_steps_agree() -> None:
    run = Run(Plan())
    run.steps(900, 400, 20, 11)
    assert run.window() is Window.WARMUP
    run.steps(10, 10.5)
    assert run.window() is Window.CLEAN
    assert [sample.ns / MS for sample in run.windows.warmup] == [900, 400, 20, 11, 10, 10.5]


def test_the_first_step_begins_at_its_first_call() -> None:
    """What the script did before it, imports and data, is no part of any step."""
    run = Run(Plan(warmup=4, clean=3))
    run.clock.now += 2000 * MS
    run.windows.phase_changed("forward")
    run.clock.now += 5 * MS
    run.windows.phase_changed("backward")
    run.steps(5)
    run.clock.now += 2 * MS
    run.windows.phase_changed("forward")
    run.steps(8)
    assert [sample.ns for sample in run.windows.warmup] == [10 * MS, 10 * MS]


def test_on_a_busy_host_warm_up_ends_when_steps_get_no_faster() -> None:
    """No three of them agree, but noise is no warm-up."""
    run = Run(Plan())
    run.steps(900, 100, 60, 40, 13, 10, 16)
    assert run.window() is Window.WARMUP
    run.steps(11)
    assert run.window() is Window.WARMUP
    run.steps(15)
    assert run.window() is Window.CLEAN


def test_warm_up_that_never_settles_is_bounded_by_count() -> None:
    run = Run(Plan(most_warmup=12))
    run.steps(*(1000 * 0.8**number for number in range(11)))
    assert run.window() is Window.WARMUP
    run.steps(10)
    assert run.window() is Window.CLEAN


def test_warm_up_that_never_settles_is_bounded_by_time() -> None:
    run = Run(Plan(most_warmup_s=1.0))
    run.steps(400, 100, 500)
    assert run.window() is Window.WARMUP
    run.steps(200)
    assert run.window() is Window.CLEAN


def test_warm_up_of_a_given_length() -> None:
    run = Run(Plan(warmup=2))
    run.steps(100, 1)
    assert run.window() is Window.CLEAN


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


def test_the_host_takes_the_smaller_of_what_it_took_from_idle_and_in_clean_steps() -> None:
    issue = [{"forward": 15.0, "backward": 21.0}, {"forward": 17.0, "backward": 22.0}]
    steady = [{"forward": 12.0, "backward": 30.0}] * 3
    assert usual_phases(issue, steady) == {"forward": 12.0, "backward": 21.5}
    assert usual_phases(issue, []) == {"forward": 16.0, "backward": 21.5}
    assert usual_phases([], steady) == {}


def test_all_windows_in_turn() -> None:
    run = Run(Plan(warmup=2, clean=4, issue=2, profiled=3))
    run.steps(100, 10)
    run.steps(10, 11, 12, 13)
    assert [sample.ns / MS for sample in run.windows.clean] == [10, 11, 12, 13]
    assert run.window() is Window.ISSUE
    run.steps(10, 10)
    assert run.window() is Window.PROFILED
    run.steps(30, 20, 20)
    assert run.window() is Window.PROFILED
    run.steps(20)
    assert (run.done, run.window()) == (1, Window.DONE)
    # One more than wanted: the first pays for the profiler's start.
    assert run.profiler.calls == ["start", "step", "step", "step", "stop"]
    assert run.windows.profiled == ["train"] * 4
    run.steps(10, 10)
    assert run.done == 1


def test_without_profiled_steps_the_profiler_is_never_started() -> None:
    run = Run(Plan(warmup=1, clean=1, issue=0, profiled=0))
    run.steps(10, 10)
    assert run.done == 1
    assert run.profiler.calls == []


def test_a_profiler_that_cannot_start_ends_the_run() -> None:
    run = Run(Plan(warmup=1, clean=1, issue=0), can_profile=False)
    run.steps(10, 10)
    assert run.done == 1
    assert run.profiler.calls == ["start"]


def test_steps_of_other_kinds_do_not_count() -> None:
    run = Run(Plan(warmup=3, clean=3, issue=1, profiled=1))
    run.steps(10, 10, 10)
    run.steps(10)
    run.steps(3, 3, kind="eval")
    run.steps(10)
    assert run.window() is Window.CLEAN
    run.steps(10)
    assert run.window() is Window.ISSUE
    run.steps(3, kind="eval")
    run.steps(10)
    assert run.window() is Window.PROFILED
    run.steps(10)
    run.steps(3, kind="eval")
    assert not run.done
    run.steps(10)
    assert run.done


def test_a_kind_that_does_not_come_back_is_not_waited_for() -> None:
    run = Run(Plan(warmup=4, clean=3, issue=2, profiled=2))
    run.steps(10, 10, 10, 10)
    run.steps(*[3] * 200, kind="eval")
    assert run.done


@pytest.mark.parametrize("quick_ms", [2.5, 0.01])
def test_what_was_only_called_before_the_script_began_is_not_what_it_is_about(
    quick_ms: float,
) -> None:
    """As before a graph is captured: a few calls of the model, then replays alone."""
    run = Run(plan_of(warmup=None, steps=None, profiled=3))
    run.steps(18, 18, 18, kind="forward 2x512")
    run.steps(43, 43, 43, kind="forward 16x512")
    for _ in range(200):
        run.windows.phase_changed("forward")
        run.steps(quick_ms, kind="forward")
    assert run.done and run.profiler.calls[-1] == "stop"
    assert run.windows.main_kind == "forward"
    assert len(run.windows.clean) == len(run.windows.steady) == 4 * (10 + 1)
    assert len(run.windows.issue) == 5
    assert set(run.windows.profiled) == {"forward"}


def test_a_rare_main_kind_is_measured_with_those_between() -> None:
    run = Run(plan_of(warmup=4, steps=None, profiled=3))
    run.steps(10, 10, 10, 10)
    for _ in range(10):
        run.steps(1, 1, 1, kind="eval")
        run.steps(10)
    assert run.window() is Window.ISSUE
    assert run.windows.main_kind == "train" and len(run.windows.steady) == 10


def test_ranks_of_a_job_take_the_same_number_of_steps() -> None:
    plan = Plan(warmup=3, clean=4, issue=2, profiled=2, in_step=True, most_clean_s=0.001)
    taken = []
    for slow, can_profile in ((1, True), (7, True), (3, False)):
        run = Run(plan, can_profile=can_profile)
        for number in itertools.count():
            if run.done:
                break
            run.steps(10 * slow, kind=f"train {number % slow}")
        taken.append(number)
    assert taken == [3 + 4 + 2 + 3] * 3


def test_clean_steps_that_take_long_are_fewer() -> None:
    run = Run(Plan(warmup=1, clean=10, most_clean_s=20))
    run.steps(9_000, 9_000, 9_000)
    assert run.window() is Window.CLEAN
    run.steps(9_000)
    assert run.window() is Window.ISSUE


def test_quick_steps_that_agree_are_enough_at_ten() -> None:
    run = Run(plan_of(warmup=3, steps=None, profiled=3))
    run.steps(*[10] * 3, *[10, 10.1] * 5)
    assert run.window() is Window.ISSUE


def test_quick_steps_that_vary_go_on_for_a_while() -> None:
    run = Run(plan_of(warmup=3, steps=None, profiled=3))
    run.steps(*[10] * 3, *[10, 20] * 7)
    assert run.window() is Window.CLEAN
    run.steps(10)
    assert run.window() is Window.ISSUE


def test_slow_steps_that_vary_are_enough_at_ten() -> None:
    run = Run(plan_of(warmup=3, steps=None, profiled=3))
    run.steps(*[100] * 3, *[100, 200] * 5)
    assert run.window() is Window.ISSUE


def test_where_steps_are_free_none_is_spared() -> None:
    run = Run(plan_of(warmup=3, steps=None, profiled=3, at_leisure=True))
    run.steps(*[10] * 3, *[10] * 39)
    assert run.window() is Window.CLEAN
    run.steps(10)
    assert run.window() is Window.ISSUE


@pytest.mark.parametrize("times", [[10.0], [10, 10.1], [10, 14], [10, 10, 30], [80, 130, 100]])
def test_thirty_steps_are_enough_for_a_profile(times: list[float]) -> None:
    run = Run(plan_of(warmup=None, steps=None, profiled=3))
    run.steps(900, *itertools.islice(itertools.cycle(times), 29))
    run.windows.finish()
    assert run.profiler.calls[:2] == ["start", "step"] and run.profiler.calls[-1] == "stop"


@pytest.mark.parametrize(
    ("steps", "window", "clean", "calls"),
    [
        (1, Window.WARMUP, 0, []),
        (4, Window.CLEAN, 2, []),
        (6, Window.ISSUE, 3, []),
        (9, Window.PROFILED, 3, ["start", "step", "step", "stop"]),
    ],
)
def test_a_script_that_ends_early(steps: int, window: Window, clean: int, calls: list[str]) -> None:
    run = Run(Plan(warmup=2, clean=3, issue=2, profiled=3))
    run.steps(*[10] * steps)
    assert run.window() is window
    run.windows.finish()
    assert run.window() is Window.DONE
    assert len(run.windows.clean) == clean
    assert run.profiler.calls == calls
    assert not run.done


def test_starting_over_forgets_what_was_no_training() -> None:
    run = Run(Plan(warmup=2, clean=3))
    run.steps(10, 10, 10, kind="forward")
    run.windows.start_over()
    assert run.window() is Window.WARMUP
    run.steps(20, 20, 20, 20, 20)
    assert {sample.kind for sample in run.windows.warmup + run.windows.clean} == {"train"}


def test_there_is_no_starting_over_once_profiled() -> None:
    run = Run(Plan(warmup=1, clean=1, issue=0))
    run.steps(10, 10, kind="forward")
    run.windows.start_over()
    assert run.window() is Window.PROFILED
    assert run.windows.main_kind == "forward"


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


def test_a_forward_without_modules_is_forward_all_the_same() -> None:
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


def samples(kind: str, *times: float) -> list[Sample]:
    return [Sample(kind=kind, ns=time) for time in times]


def test_the_main_kind_is_where_most_time_goes() -> None:
    assert main_kind([]) is None
    assert main_kind(samples("a", 1, 1, 1) + samples("b", 5, 5, 5)) == "b"
    # One long evaluation, or one that had to be compiled, is not what the script is about.
    assert main_kind(samples("a", 1, 1, 1) + samples("b", 500)) == "a"
    assert main_kind(samples("a", 1, 1, 1, 1) + samples("b", 500, 1, 1)) == "a"
    assert main_kind(samples("a", 1) + samples("b", 2)) == "b"


def test_the_pace_is_looked_at_between_steps_and_never_between_clean_ones() -> None:
    looks: list[Window] = []
    run = Run(Plan(warmup=3, clean=4, issue=2, profiled=2), look=looks.append)
    run.steps(*[10.0] * 14)
    assert run.window() is Window.DONE
    assert looks == [Window.WARMUP] * 3 + [Window.ISSUE] * 3


def test_a_look_is_no_part_of_a_step() -> None:
    def look(_: Window) -> None:
        run.clock.now += 5 * MS

    run = Run(Plan(warmup=3, clean=4, issue=2, profiled=2), look=look)
    run.steps(*[10.0] * 9)
    assert {sample.ns for sample in run.windows.warmup} == {10 * MS}
    assert all(sum(step.values()) == 10 * MS for step in run.windows.issue)
