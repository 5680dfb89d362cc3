"""The founding notes' own figures: critical batch, intensity, the product on two chips."""

import pytest

from boundby.plan import chips, limits
from boundby.plan.operator import parse_shape, plan_product


def test_critical_batch_of_v5e_is_240() -> None:
    assert limits.critical_batch(chips.find("v5e")) == pytest.approx(240, rel=0.01)


@pytest.mark.parametrize(("chip", "batch"), [("h100", 295), ("h200", 206)])
def test_critical_batch_of_gpus(chip: str, batch: float) -> None:
    assert limits.critical_batch(chips.find(chip)) == pytest.approx(batch, rel=0.01)


def test_intensity_of_a_product_is_near_its_batch_when_that_is_small() -> None:
    assert limits.intensity(16, 8192, 8192) == pytest.approx(16, rel=0.01)


def test_product_on_two_chips_is_compute_bound_past_an_inner_dimension_of_8755() -> None:
    """C/W = 1.97e14 / 4.5e10 = 4377 for each half."""
    v5e = chips.find("v5e")
    limit = limits.split_inner_limit(v5e.peak("matmul.bfloat16"), 4.5e10)
    assert limit == pytest.approx(8755, rel=0.001)
    below = plan_product((4096, 4096, 4096), v5e, chips=2)
    above = plan_product((4096, 16384, 4096), v5e, chips=2)
    assert below.bound_by == "all-reduce of the result"
    assert above.bound_by == "arithmetic"


def test_split_matmul_and_its_exchange_match_the_notes() -> None:
    """Each chip multiplies half: 2 M (K/2) N operations; 2 M N bytes cross the link each way."""
    v5e = chips.find("v5e")
    found = {
        term.name: term.total_ns for term in plan_product((4096, 8192, 4096), v5e, chips=2).terms
    }
    assert found["arithmetic"] == pytest.approx(2 * 4096 * 4096 * 4096 / 1.97e14 * 1e9)
    exchange = 2 * 4096 * 4096 / (4.5e10 * 0.95) * 1e9
    assert found["all-reduce of the result"] == pytest.approx(exchange, rel=0.02)


def test_perfect_overlap_is_the_maximum_and_none_is_the_sum() -> None:
    plan = plan_product(parse_shape("512x8192x28672"), chips.find("h100"))
    times = [term.total_ns for term in plan.terms]
    assert plan.overlapped_ns == pytest.approx(max(times))
    assert plan.serial_ns == pytest.approx(sum(times))
