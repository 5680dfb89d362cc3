"""The windows of a run, on a clock that the test moves."""

import itertools
import math
import statistics

import pytest

from boundby.capture.process.kinds import Sample, main_kind
from boundby.capture.process.plan import Plan, plan_of
from boundby.capture.process.windows import Window
from tests.capture.runs import MS, Run


def test_warm_up_ends_when_three_steps_agree() -> None:
    run = Run(Plan())
    run.steps(900, 400, 20, 11)
    assert run.window() is Window.WARMUP
    run.steps(10, 10.5)
    assert run.window() is Window.ISSUE
    assert [sample.ns / MS for sample in run.windows.warmup] == [900, 400, 20, 11, 10, 10.5]


def test_first_step_begins_at_its_first_call() -> None:
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


def test_warm_up_on_a_busy_host_ends_when_steps_get_no_faster() -> None:
    """No three of them agree, but noise is no warm-up."""
    run = Run(Plan())
    run.steps(900, 100, 60, 40, 13, 10, 16)
    assert run.window() is Window.WARMUP
    run.steps(11)
    assert run.window() is Window.WARMUP
    run.steps(15)
    assert run.window() is Window.ISSUE


def test_warm_up_that_never_settles_is_bounded_by_count() -> None:
    run = Run(Plan(most_warmup=12))
    run.steps(*(1000 * 0.8**number for number in range(11)))
    assert run.window() is Window.WARMUP
    run.steps(10)
    assert run.window() is Window.ISSUE


def test_warm_up_that_never_settles_is_bounded_by_time() -> None:
    run = Run(Plan(most_warmup_s=1.0))
    run.steps(400, 100, 500)
    assert run.window() is Window.WARMUP
    run.steps(200)
    assert run.window() is Window.ISSUE


def test_given_warm_up_length_is_used() -> None:
    run = Run(Plan(warmup=2))
    run.steps(100, 1)
    assert run.window() is Window.ISSUE


def test_windows_follow_in_order() -> None:
    run = Run(Plan(warmup=2, clean=4, issue=3, profiled=3))
    run.steps(100, 10)
    assert run.window() is Window.ISSUE
    run.steps(9)
    assert run.window() is Window.CLEAN
    run.steps(10, 11, 12, 13)
    assert [sample.ns / MS for sample in run.windows.clean] == [10, 11, 12, 13]
    assert run.window() is Window.ISSUE
    run.steps(14, 15)
    assert run.window() is Window.PROFILED
    assert [sum(phases.values()) / MS for phases in run.windows.issue] == [9, 14, 15]
    run.steps(30, 20, 20)
    assert run.window() is Window.PROFILED
    run.steps(20)
    assert (run.done, run.window()) == (1, Window.DONE)
    # One more than wanted: the first pays for the profiler's start.
    assert run.profiler.calls == ["start", "step", "step", "step", "stop"]
    assert run.windows.profiled == ["train"] * 4
    run.steps(10, 10)
    assert run.done == 1


def test_drifting_host_is_timed_at_speed_of_clean_steps() -> None:
    run = Run(plan_of(warmup=3, steps=10, profiled=1))
    run.steps(*(10 + 0.3 * number for number in range(3 + 6 + 10)))
    assert run.window() is Window.PROFILED
    host = statistics.median(sum(phases.values()) for phases in run.windows.issue)
    assert host == pytest.approx(statistics.median(one.ns for one in run.windows.clean), rel=0.05)


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


def test_kind_that_stops_occurring_is_not_waited_for() -> None:
    run = Run(Plan(warmup=4, clean=3, issue=2, profiled=2))
    run.steps(10, 10, 10, 10)
    run.steps(*[3] * 200, kind="eval")
    assert run.done


@pytest.mark.parametrize("quick_ms", [2.5, 0.01])
def test_kind_seen_only_before_clean_steps_is_not_main_kind(
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
    assert len(run.windows.issue) == 6  # those before were of another kind
    assert set(run.windows.profiled) == {"forward"}


def test_rare_main_kind_is_measured_across_other_steps() -> None:
    run = Run(plan_of(warmup=4, steps=None, profiled=3))
    run.steps(10, 10, 10, 10)
    for _ in range(10):
        run.steps(1, 1, 1, kind="eval")
        run.steps(10)
    assert run.window() is Window.ISSUE
    assert run.windows.main_kind == "train" and len(run.windows.steady) == 10


def test_profiler_waits_for_late_main_kind() -> None:
    run = Run(Plan(warmup=2, clean=2, issue=1, profiled=1))
    run.steps(10, 10, 10, 10, 10)
    assert run.window() is Window.PROFILED
    run.steps(*[3] * 12, kind="short")
    run.steps(10)
    assert run.done and run.windows.unprofiled is None
    assert run.windows.main_kind == "train"


def test_another_kind_is_used_if_the_main_kind_was_not_profiled() -> None:
    """Its phases and times come from the earlier windows, which contain it."""
    run = Run(Plan(warmup=3, clean=3, issue=3, profiled=1))
    for _ in range(2):
        run.steps(10)
        run.steps(4, kind="short")
    run.steps(10)
    run.windows.phase_changed("forward")
    run.steps(4, kind="short")
    run.steps(10, 10)
    run.steps(10, 10, 10)
    assert run.window() is Window.PROFILED and run.windows.main_kind == "train"
    run.steps(*[4] * 30, kind="short")
    assert run.done
    assert run.windows.main_kind == "short" and run.windows.unprofiled == "train"
    assert [sum(phases.values()) for phases in run.windows.issue] == [4 * MS]
    assert [sum(phases.values()) for phases in run.windows.steady] == [4 * MS]


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


@pytest.mark.parametrize(
    ("most_late_ms", "profiled", "first"),
    [
        (1000, 4, 1),
        (95, 3, 1),  # three of them are 90 ms late, and one more would be 120
        (70, 2, 1),
        (50, 1, 0),  # two are too much: one counts, though it is the first
    ],
)
def test_steps_that_make_very_many_calls_are_profiled_less(
    most_late_ms: float, profiled: int, first: int
) -> None:
    plan = Plan(warmup=1, clean=2, issue=2, profiled=3)
    run = Run(plan, most_late_ms=most_late_ms)
    run.steps(*[10] * 5)
    assert run.window() is Window.PROFILED
    run.steps(*[40] * 4)
    assert run.window() is Window.DONE
    assert (len(run.windows.profiled), run.windows.first_profiled) == (profiled, first)
    assert run.profiler.calls == ["start", *["step"] * (profiled - 1), "stop"]


def test_first_step_after_another_kind_is_dropped() -> None:
    run = Run(Plan(warmup=1, clean=2, issue=2, profiled=3), most_late_ms=50)
    run.steps(*[10] * 5)
    run.steps(40, kind="eval")
    assert run.window() is Window.PROFILED
    run.steps(40)
    assert run.window() is Window.DONE
    assert run.windows.profiled[run.windows.first_profiled :] == ["train"]


def test_ranks_that_are_profiled_less_end_with_the_others() -> None:
    plan = Plan(warmup=1, clean=2, issue=2, profiled=3, in_step=True)
    run = Run(plan, most_late_ms=50)
    run.steps(*[10] * 5, 40)
    assert run.window() is Window.COUNTED
    run.steps(10, 10)
    assert not run.done
    run.steps(10)
    assert run.done and len(run.windows.profiled) == 1


def test_clean_steps_that_take_long_are_fewer() -> None:
    run = Run(Plan(warmup=1, clean=10, issue=1, most_clean_s=20))
    run.steps(9_000, 9_000, 9_000)
    assert run.window() is Window.CLEAN
    run.steps(9_000)
    assert run.window() is Window.ISSUE


def test_ten_quick_steps_are_enough_if_they_agree() -> None:
    run = Run(plan_of(warmup=3, steps=None, profiled=3))
    run.steps(*[10] * 6, *[10, 10.1] * 5)
    assert run.window() is Window.ISSUE


def test_quick_steps_that_vary_are_measured_longer() -> None:
    run = Run(plan_of(warmup=3, steps=None, profiled=3))
    run.steps(*[10] * 6, *[10, 20] * 7)
    assert run.window() is Window.CLEAN
    run.steps(10)
    assert run.window() is Window.ISSUE


def test_ten_slow_steps_are_enough_even_if_they_vary() -> None:
    run = Run(plan_of(warmup=3, steps=None, profiled=3))
    run.steps(*[100] * 6, *[100, 200] * 5)
    assert run.window() is Window.ISSUE


def test_all_requested_steps_are_measured_if_they_are_free() -> None:
    run = Run(plan_of(warmup=3, steps=None, profiled=3, at_leisure=True))
    run.steps(*[10] * 7, *[10] * 39)
    assert run.window() is Window.CLEAN
    run.steps(10)
    assert run.window() is Window.ISSUE


@pytest.mark.parametrize("times", [[10.0], [10, 10.1], [10, 14], [10, 10, 30], [80, 130, 100]])
def test_script_of_thirty_steps_is_profiled(times: list[float]) -> None:
    run = Run(plan_of(warmup=None, steps=None, profiled=3))
    run.steps(900, *itertools.islice(itertools.cycle(times), 29))
    run.windows.finish()
    assert run.profiler.calls[:2] == ["start", "step"] and run.profiler.calls[-1] == "stop"


@pytest.mark.parametrize(
    ("steps", "window", "clean", "calls"),
    [
        (1, Window.WARMUP, 0, []),
        (5, Window.CLEAN, 2, []),
        (6, Window.ISSUE, 3, []),
        (9, Window.PROFILED, 3, ["start", "step", "step", "stop"]),
    ],
)
def test_script_that_ends_early_keeps_its_steps(
    steps: int, window: Window, clean: int, calls: list[str]
) -> None:
    run = Run(Plan(warmup=2, clean=3, issue=2, profiled=3))
    run.steps(*[10] * steps)
    assert run.window() is window
    run.windows.finish()
    assert run.window() is Window.DONE
    assert len(run.windows.clean) == clean
    assert run.profiler.calls == calls
    assert not run.done


def test_restart_drops_earlier_steps() -> None:
    run = Run(Plan(warmup=2, clean=3))
    run.steps(10, 10, 10, kind="forward")
    run.windows.start_over()
    assert run.window() is Window.WARMUP
    run.steps(20, 20, 20, 20, 20)
    assert {sample.kind for sample in run.windows.warmup + run.windows.clean} == {"train"}


def test_no_restart_after_the_profile() -> None:
    run = Run(Plan(warmup=1, clean=1, issue=0))
    run.steps(10, 10, kind="forward")
    run.windows.start_over()
    assert run.window() is Window.PROFILED
    assert run.windows.main_kind == "forward"


def samples(kind: str, *times: float) -> list[Sample]:
    return [Sample(kind=kind, ns=time) for time in times]


def test_main_kind_is_the_one_with_most_time() -> None:
    assert main_kind([]) is None
    assert main_kind(samples("a", 1, 1, 1) + samples("b", 5, 5, 5)) == "b"
    # One long evaluation, or one that had to be compiled, is not what the script is about.
    assert main_kind(samples("a", 1, 1, 1) + samples("b", 500)) == "a"
    assert main_kind(samples("a", 1, 1, 1, 1) + samples("b", 500, 1, 1)) == "a"
    assert main_kind(samples("a", 1) + samples("b", 2)) == "b"


def rollouts(run: Run, steps: int, ms: float) -> None:
    run.in_row = True
    run.steps(*[ms] * steps, kind="forward")
    run.in_row = False


@pytest.mark.parametrize("warmup", [None, 3])
def test_warm_up_lasts_while_it_is_unclear_whether_other_steps_come(warmup: int | None) -> None:
    run = Run(plan_of(warmup=warmup, steps=None, profiled=3))
    run.awaits_ns = math.inf
    run.steps(*[900] * 200, kind="forward")
    assert run.window() is Window.WARMUP
    run.awaits_ns = 0.0
    run.steps(*[900] * 60, kind="forward")
    assert run.done


def test_rollouts_with_most_time_are_profiled() -> None:
    """Updates come first; 16 of 12 ms are less than 128 calls of 3.5 ms."""
    run = Run(plan_of(warmup=None, steps=None, profiled=3))
    run.awaits_ns = 60e9
    run.steps(450, *[12] * 16)
    assert run.window() is Window.WARMUP
    rollouts(run, 128, 3.5)
    run.awaits_ns = 0.0
    for _ in range(2):
        run.steps(*[12] * 16)
        rollouts(run, 128, 3.5)
    assert run.done and run.windows.main_kind == "forward"
    assert run.windows.profiled[-3:] == ["forward"] * 3


def test_long_evaluation_is_waited_for() -> None:
    run = Run(Plan(warmup=3, clean=4, issue=2, profiled=2))
    run.steps(*[200] * 6)
    rollouts(run, 200, 5)
    assert run.window() is Window.CLEAN
    run.steps(*[200] * 6)
    assert run.done and run.windows.main_kind == "train"


def test_finished_training_is_not_waited_for() -> None:
    run = Run(Plan(warmup=3, clean=4, issue=2, profiled=2))
    run.steps(*[20] * 6)
    rollouts(run, 500, 5)
    assert run.done and run.windows.main_kind == "forward"


def test_steps_of_requested_kind_are_measured() -> None:
    run = Run(plan_of(warmup=None, steps=5, profiled=2, kind="forward"))
    run.steps(*[100] * 50)
    assert run.window() is Window.WARMUP
    run.steps(*[10] * 30, kind="forward 4x4")
    assert run.done
    assert run.windows.main_kind == "forward 4x4"
    assert {sample.kind for sample in run.windows.warmup} == {"forward 4x4"}


def test_missing_kind_is_named_with_seen_kinds() -> None:
    run = Run(plan_of(warmup=None, steps=5, profiled=2, kind="forward"))
    run.steps(*[100] * 50)
    run.windows.finish()
    assert run.windows.main_kind is None
    assert run.windows.skipped_words() == {"'train' steps, not of kind 'forward'": 50}
