"""What the profiler takes for Python, from loops timed without and with one."""

import sys

from boundby.capture.torch.profiler_cost import measured_call_cost, take_times


def test_calls_are_distinguished_from_the_code_around_them() -> None:
    # A turn takes 10 ns and 20 under the profiler; calls add 30 and 40, and 200 and 400 there.
    call_cost = measured_call_cost((10.0, 40.0, 50.0), (20.0, 220.0, 420.0))
    assert call_cost.of_python == 0.5
    assert call_cost.builtin_ns == 170.0
    assert call_cost.function_ns == 360.0


def test_call_that_is_not_slower_has_no_profiler_cost() -> None:
    assert measured_call_cost((10.0, 40.0, 50.0), (9.0, 38.0, 40.0)) == (0.0, 0.0, 0.0)


def test_profiler_cost_of_real_calls_is_measured() -> None:
    without = take_times()
    sys.setprofile(lambda *_: None)
    try:
        under = take_times()
    finally:
        sys.setprofile(None)
    call_cost = measured_call_cost(without, under)
    assert call_cost.function_ns > 0
    assert call_cost.builtin_ns > 0
