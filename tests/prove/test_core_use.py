"""Idle cores between two readings of the counters."""

import pytest

from boundby.prove.core_use import CoreUse, core_use
from boundby.runtime.cores import cores_at_hand


def test_idle_cores_are_those_of_the_machine_and_not_used_by_the_program() -> None:
    cores = float(cores_at_hand())
    before = CoreUse(at_s=10.0, ours_s=1.0, idle_s=100.0)
    after = CoreUse(at_s=12.0, ours_s=1.0 + 2 * (cores - 0.5), idle_s=100.0 + 2 * 64)
    assert after.free_cores(since=before) == pytest.approx(0.5)
    others_busy = CoreUse(at_s=12.0, ours_s=1.0, idle_s=100.2)
    assert others_busy.free_cores(since=before) == pytest.approx(0.1)


def test_core_use_of_zero_time_is_unknown() -> None:
    now = core_use()
    assert now.free_cores(since=now) is None
