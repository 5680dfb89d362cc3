"""The host's speed."""

from boundby.capture.host.speed import HostSpeedSampler


def test_samples_close_together_count_once() -> None:
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1_000
        return now

    speed = HostSpeedSampler(clock)
    for _ in range(50):
        speed.sample()
    assert len(speed.samples_ns) == 1
    now += 20_000_000
    speed.sample()
    assert len(speed.samples_ns) == 2
