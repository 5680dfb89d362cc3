"""The interval of a speed-up: checked against arithmetic, and on simulated rounds."""

import math
import random

import pytest

from boundby.prove.confidence import half_width, median_bounds, speedup_of


def test_interval_width_follows_the_formula() -> None:
    # 3 rounds: K = 1 + 3 * 10, L = (sqrt(K) / 0.045) ** (2 / 3), t^2 = 2 (L - 1) / (1 - L / K)
    limit = (math.sqrt(31) / 0.045) ** (2 / 3)
    wanted = math.sqrt(2 * (limit - 1) / (1 - limit / 31) / 3)
    assert half_width(3) == pytest.approx(wanted)
    assert half_width(4) < half_width(3)
    assert math.isinf(half_width(2))


def test_two_rounds_are_undecided_and_equal_rounds_have_finite_interval() -> None:
    assert speedup_of([0.1, 0.1]) is None
    found = speedup_of([0.1, 0.1, 0.1])
    assert found is not None
    assert found.low < math.exp(0.1) < found.high


@pytest.mark.parametrize("sd", [0.003, 0.03])
def test_repeated_looks_keep_the_error_rate(sd: float) -> None:
    generator = random.Random(7)
    missed = 0
    for _ in range(400):
        rounds: list[float] = []
        for _ in range(20):
            rounds.append(generator.gauss(math.log(1.1), sd))
            found = speedup_of(rounds)
            if found is not None and not found.low <= 1.1 <= found.high:
                missed += 1
                break
    assert missed <= 0.05 * 400


def test_median_has_bounds_from_eleven_rounds_on() -> None:
    # None of 10 below: 2^10 (1/2)(3/2)...(19/2) / 10! = 180; of 11: 344, above 1 / 0.005.
    assert median_bounds(list(range(10))) == (-math.inf, math.inf)
    assert median_bounds(list(range(11))) == (0, 10)
    # One of 15: 2^15 B(1.5, 14.5) / B(0.5, 0.5) = 163; of 16: 296.
    assert median_bounds(list(range(15))) == (0, 14)
    assert median_bounds(list(range(16))) == (1, 14)


def test_disturbed_rounds_do_not_keep_a_large_gain_undecided() -> None:
    quiet = [math.log(1.37) + 0.01 * (-1) ** one for one in range(16)]
    found = speedup_of([*quiet, 2.0, -1.5])
    assert found is not None
    assert found.low > 1.3 and found.high < 1.45
    assert found.median == pytest.approx(1.37, rel=0.02)


@pytest.mark.parametrize("disturbed", [0.1, 0.3])
def test_repeated_looks_keep_the_error_rate_on_a_disturbed_host(disturbed: float) -> None:
    """Either block of a round may be the disturbed one."""
    generator = random.Random(11)
    missed = 0
    for _ in range(400):
        rounds: list[float] = []
        for _ in range(40):
            burst = generator.choice((-1, 1)) * generator.expovariate(2.0)
            noise = burst if generator.random() < disturbed else 0.0
            rounds.append(math.log(1.1) + generator.gauss(0.0, 0.02) + noise)
            found = speedup_of(rounds)
            if found is not None and not found.low <= 1.1 <= found.high:
                missed += 1
                break
    assert missed <= 0.05 * 400
