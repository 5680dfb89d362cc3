"""Suggested options for a script with too few steps."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundby.capture.process.plan import fitting, is_known, plan_of, shortfall
from boundby.capture.process.windows import Window
from tests.capture.runs import Run


@given(st.integers(1, 200))
def test_suggested_options_fit(steps: int) -> None:
    request = fitting(steps)
    if request is None:
        assert steps < 8
        return
    assert request.total() <= steps
    run = Run(
        plan_of(warmup=request.warmup, steps=request.steps, profiled=request.profiled),
    )
    run.steps(*[10] * request.total())
    assert run.done == 1 and run.windows.steps == request.total()
    assert len(run.windows.profiled) == request.profiled + 1


@given(st.integers(1, 300), st.integers(2, 5))
def test_suggested_options_fit_script_with_several_kinds(steps: int, kinds: int) -> None:
    """Kinds in alternation, the first a little longer: only its steps count."""
    if (request := fitting(steps, share=1 / kinds)) is None:
        return
    run = Run(plan_of(warmup=request.warmup, steps=request.steps, profiled=request.profiled))
    for at in range(steps):
        run.steps(10.5 if at % kinds == 0 else 10.0, kind=f"of {at % kinds}")
    assert run.done == 1
    # Behind the first, which is dropped.
    assert run.windows.main_kind in run.windows.profiled[1:]


def test_script_with_several_kinds_of_step_is_reported() -> None:
    run = Run(plan_of(warmup=8, steps=None, profiled=3))
    for at in range(12):
        run.steps(10.5 if at % 4 == 0 else 10.0, kind=f"of {at % 4}")
    run.windows.finish()
    line = shortfall("clean steps", 60, 3, spelling="options", share=run.windows.main_share)
    assert (
        "after 60 steps, 25% of them of the kind with most time, and no complete step was profiled"
        in line
    )
    assert "--warmup 5 --steps 5 --profiled 2 would fit in" in line
    none = shortfall("clean steps", 20, 3, spelling="options", share=run.windows.main_share)
    assert none.endswith("at least 21 steps are needed to measure and profile it")


def test_more_steps_never_reduce_the_suggested_options() -> None:
    totals = [request.total() for steps in range(1, 60) if (request := fitting(steps))]
    assert totals == sorted(totals)
    # A script that is long enough for the usual plan gets no smaller suggestion.
    assert fitting(40) == fitting(30)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (1, "the loop ended during its warm-up, after 1 step: at least 6 steps are needed"),
        (5, "the loop ended during its warm-up, after 5 steps: at least 6 steps are needed"),
        (
            12,
            "and no complete step was profiled: watch(warmup=3, steps=3, profiled=1) would fit in",
        ),
    ],
)
def test_loop_gets_suggestions_as_python_arguments(steps: int, words: str) -> None:
    line = shortfall(Window.WARMUP.value, steps, 3, spelling="arguments")
    assert words in line
    assert "--" not in line


def test_script_gets_suggestions_as_options() -> None:
    line = shortfall(Window.CLEAN.value, 12, 3, spelling="options")
    assert line == (
        "the script ended during its clean steps, after 12 steps, and no complete step was "
        "profiled: --warmup 3 --steps 3 --profiled 1 would fit in"
    )


def test_no_profile_is_suggested_if_none_was_requested() -> None:
    line = shortfall(Window.CLEAN.value, 12, 0, spelling="options")
    assert line == "the script ended during its clean steps, after 12 steps"


def test_a_median_is_known_when_most_steps_are_near_it() -> None:
    assert is_known([100, 101, 99] * 4, 0.03)
    # One in ten that is far off moves no median.
    assert is_known([100] * 9 + [900], 0.03)
    assert not is_known([100, 120] * 6, 0.03)
    assert not is_known([100, 100, 100], 0.03)
    assert not any(is_known([100] * count, 0.03) for count in range(4))


@given(st.lists(st.floats(1, 1e9), max_size=60))
def test_interval_contains_the_median(times: list[float]) -> None:
    if is_known(times, 0.03):
        middle = statistics.median(times)
        near = [time for time in times if abs(time - middle) <= 0.0301 * middle]
        assert len(near) >= len(times) * 0.2
