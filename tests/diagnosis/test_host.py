"""What is made of a host whose pace changes."""

import pytest

from boundby.diagnosis.host import host_factors, slower_than_measured, unsteady
from boundby.model import Machine
from boundby.model.machine import Overheads
from boundby.model.observation import HostSpeed, StepTiming
from boundby.model.step_kind import StepKind

KIND = StepKind(label="train", series="train", mode="train")


def timing(*issue_ns: float) -> StepTiming:
    return StepTiming(kind=KIND, wall_source="clean", issue=[{"forward": ns} for ns in issue_ns])


def speed(addition_ns: list[float], issue_addition_ns: list[float]) -> HostSpeed:
    return HostSpeed(addition_ns=addition_ns, issue_addition_ns=issue_addition_ns)


def factors(
    speed: HostSpeed,
    *issue_ns: float,
    wall_ns: float = 1e9,
    explaining: float | None = None,
) -> list[float]:
    step = timing(*issue_ns)
    found = host_factors(step, speed, wall_ns=wall_ns, issued_ns=1e6, explaining=explaining)
    return list(found)


def test_steady_host_range_is_the_difference_between_processes() -> None:
    found = factors(speed([20.0] * 10, [20.0] * 3), 1e6, 1e6, 1e6)
    assert found == pytest.approx([1.0, 0.8, 1.2])
    assert unsteady(speed([20.0, 21.0] * 5, [20.0])) == []


def test_steps_timed_on_a_slow_host_may_be_as_fast_as_the_fastest_samples() -> None:
    """Half of the time it took 20 ns an addition, half of it 40; the steps met only the slow."""
    likely, fast, slow = factors(speed([20.0] * 5 + [40.0] * 5, [40.0] * 3), 1e6, 1e6, 1e6)
    assert likely == 1.0
    assert fast == pytest.approx(0.5)
    assert slow == pytest.approx(1.2)


def test_steps_timed_on_a_fast_host_may_be_as_slow_as_the_slowest_samples() -> None:
    likely, fast, slow = factors(speed([20.0] * 5 + [40.0] * 5, [20.0] * 3), 1e6, 1e6, 1e6)
    assert likely == 1.0
    assert fast == pytest.approx(0.8)
    assert slow == pytest.approx(2.0)


def test_host_time_does_not_exceed_the_step() -> None:
    likely, *_ = factors(speed([20.0] * 10, [20.0] * 3), 1e6, 1e6, 1e6, wall_ns=6e5)
    assert likely == pytest.approx(0.6)


def test_host_speed_that_explains_the_step_is_the_expected_one() -> None:
    host = speed([20.0] * 5 + [40.0] * 5, [40.0] * 3)
    assert factors(host, 1e6, 1e6, 1e6, explaining=1.1)[0] == 1.1


def test_two_host_speeds_are_reported() -> None:
    (note,) = unsteady(speed([20.0] * 5 + [40.0] * 5, [40.0]))
    assert "20.0 ns to 40.0 ns" in note.text


def test_without_speed_samples_no_range_is_assumed() -> None:
    assert factors(speed([], []), 1e6, 1e6) == pytest.approx([1.0, 0.8, 1.2])
    assert unsteady(speed([], [])) == []


def test_slower_host_scales_less_than_python_addition() -> None:
    machine = Machine(device="d", kind="cuda", overheads=Overheads(python_add_ns=20.0))
    found = slower_than_measured(speed([30.0, 40.0], [39.0, 40.0, 80.0]), machine)
    assert found == pytest.approx(2**0.7)
    assert slower_than_measured(speed([20.0], [20.0]), machine) == 1.0
    # Where one of the two is not known, nothing is assumed.
    assert slower_than_measured(speed([], []), machine) == 1.0
    unknown = Machine(device="d", kind="cuda")
    assert slower_than_measured(speed([40.0], [40.0]), unknown) == 1.0
