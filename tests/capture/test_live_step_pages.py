"""Page faults of short steps are read together and divided among them."""

from __future__ import annotations

import pytest

from boundby.capture.host import counters
from boundby.capture.host.counters import HostCounterSampler


def test_short_steps_share_a_reading_of_page_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    now, read = 0, []

    def faults_and_system_ns() -> tuple[int, float]:
        read.append(now)
        return now // 100_000, 0.0  # one page each 100 us

    monkeypatch.setattr(counters, "faults_and_system_ns", faults_and_system_ns)
    sampler = HostCounterSampler(clock=lambda: now)
    sampler.begin()
    for _ in range(25):
        now += 1_000_000
        sampler.step()
    sampler.end()
    seen = sampler.host_counters((1e6,) * 25, None).step_pages
    assert seen == (10,) * 25
    # At the begin, after 10 and 20 steps, and at the end for the last steps and for the window.
    assert len(read) == 5
