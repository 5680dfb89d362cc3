"""The host's pace."""

from boundby.capture.host.speed import Pace


def test_looks_close_to_each_other_are_one() -> None:
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1_000
        return now

    pace = Pace(clock)
    for _ in range(50):
        pace.look()
    assert len(pace.seen) == 1
    now += 20_000_000
    pace.look()
    assert len(pace.seen) == 2
