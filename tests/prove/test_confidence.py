"""The interval of a speed-up: checked against arithmetic, and on simulated rounds."""

import math
import random

import pytest

from boundby.prove.confidence import half_width, speedup_of


def test_interval_width_follows_the_formula() -> None:
    # 3 rounds: K = 1 + 3 * 10, L = (sqrt(K) / 0.05) ** (2 / 3), t^2 = 2 (L - 1) / (1 - L / K)
    limit = (math.sqrt(31) / 0.05) ** (2 / 3)
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
