"""Kernels timed with twice the batch: how they are said to grow."""

import pytest

from boundby.remedies.growth import Alone, grown_ns, twice_ns


@pytest.mark.parametrize(
    ("twice_ns", "four_times_ns"),
    [
        (100.0, 100.0),  # it was waiting for something else than samples
        (150.0, 250.0),  # 50 for being there, 50 for each batch
        (200.0, 400.0),
        (240.0, 480.0),  # it outgrew a cache, once
        (60.0, 120.0),  # another kernel took over, which grows as kernels do
    ],
)
def test_growth_goes_on_as_it_began(twice_ns: float, four_times_ns: float) -> None:
    assert grown_ns(100.0, twice_ns, 2) == pytest.approx(twice_ns)
    assert grown_ns(100.0, twice_ns, 4) == pytest.approx(four_times_ns)


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (20.0, 40.0),  # all of its memory is in the caches there, as when it is timed over and over
        (30.0, 56.0),  # none of it is
        (25.0, 48.0),  # half of it
        (60.0, 112.0),  # slower than ever alone, for a reason that stays
        (15.0, 30.0),
    ],
)
def test_calls_grow_as_those_do_that_find_as_much_in_the_caches(ns: float, expected: float) -> None:
    assert twice_ns(ns, Alone(20.0, 30.0), Alone(40.0, 56.0)) == pytest.approx(expected)


def test_what_outgrows_a_cache_takes_no_longer_than_without_one() -> None:
    """Timed alone it takes four times as long; where it already missed, no more than that."""
    assert twice_ns(40.0, Alone(10.0, 40.0), Alone(40.0, 80.0)) == pytest.approx(80.0)
    assert twice_ns(39.0, Alone(10.0, 10.0), Alone(40.0, 40.0)) == pytest.approx(78.0)
