"""Kernels timed with twice the batch: how they are said to grow."""

import pytest

from boundby.remedies.batch_too_small import grown_ns


@pytest.mark.parametrize(
    ("twice_ns", "four_times_ns"),
    [
        (100.0, 100.0),  # it was waiting for something else than samples
        (150.0, 250.0),  # 50 for being there, 50 for each batch
        (200.0, 400.0),
        (240.0, 480.0),  # it outgrew a cache, once
    ],
)
def test_growth_goes_on_as_it_began(twice_ns: float, four_times_ns: float) -> None:
    assert grown_ns(100.0, twice_ns, 2) == pytest.approx(twice_ns)
    assert grown_ns(100.0, twice_ns, 4) == pytest.approx(four_times_ns)
