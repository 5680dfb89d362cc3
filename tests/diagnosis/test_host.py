"""What is made of a host whose pace changes."""

import pytest

from boundby.capture.live.recorder import Capture
from boundby.diagnosis.host import host_factors, pace_of, unsteady
from tests.machines import round_machine


def seen(pace: list[float], issue_pace: list[float], *issue_ns: float) -> Capture:
    issue = [{"forward": ns} for ns in issue_ns]
    return Capture(
        step_by="optimizer", main_kind="train", pace=pace, issue_pace=issue_pace, issue=issue
    )


def factors(
    capture: Capture, *, wall_ns: float = 1e9, explaining: float | None = None
) -> list[float]:
    machine = round_machine()
    found = host_factors(capture, machine, wall_ns=wall_ns, issued_ns=1e6, explaining=explaining)
    return list(found)


def test_a_steady_host_differs_by_what_processes_do() -> None:
    found = factors(seen([20.0] * 10, [20.0] * 3, 1e6, 1e6, 1e6))
    assert found == pytest.approx([1.0, 0.8, 1.2])
    assert unsteady(seen([20.0, 21.0] * 5, [20.0])) == []


def test_a_host_timed_while_it_was_slow_is_likely_as_fast_as_usual() -> None:
    """Half of the time it took 20 ns an addition, half of it 40; the steps met only the slow."""
    likely, fast, slow = factors(seen([20.0] * 5 + [40.0] * 5, [40.0] * 3, 1e6, 1e6, 1e6))
    assert likely == pytest.approx(0.75)
    assert fast == pytest.approx(0.5)
    assert slow == pytest.approx(1.0)


def test_it_may_be_as_fast_as_it_was_when_the_machine_was_measured() -> None:
    capture = seen([40.0] * 10, [40.0] * 3, 1e6, 1e6, 1e6)
    saved = round_machine().overheads.python_add_ns
    assert saved is not None
    assert factors(capture)[1] == pytest.approx(min(0.8, saved / 40.0))


def test_no_host_takes_longer_than_the_step() -> None:
    likely, *_ = factors(seen([20.0] * 10, [20.0] * 3, 1e6, 1e6, 1e6), wall_ns=6e5)
    assert likely == pytest.approx(0.6)


def test_a_host_that_explains_the_step_is_likelier_than_any() -> None:
    capture = seen([20.0] * 5 + [40.0] * 5, [40.0] * 3, 1e6, 1e6, 1e6)
    assert factors(capture, explaining=1.1)[0] == 1.1


def test_two_paces_are_spoken_of() -> None:
    (line,) = unsteady(seen([20.0] * 5 + [40.0] * 5, [40.0]))
    assert "20.0 ns to 40.0 ns" in line


def test_without_a_look_nothing_is_assumed() -> None:
    assert factors(seen([], [], 1e6, 1e6)) == pytest.approx([1.0, 0.8, 1.2])
    assert unsteady(seen([], [])) == []


def test_the_pace_is_taken_beside_the_saved_one() -> None:
    # The round machine adds in 25 ns.
    assert pace_of(seen([50.0] * 5, [40.0, 50.0, 60.0], 1e6), round_machine()) == 2.0
    assert pace_of(seen([], [], 1e6), round_machine()) == 1.0
