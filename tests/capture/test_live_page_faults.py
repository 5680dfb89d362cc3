"""Fresh pages are counted, and cost something."""

import sys

import pytest
import torch

from boundby.capture.host import page_faults
from boundby.capture.host.page_faults import fault_ns, faults


@pytest.mark.skipif(sys.platform == "win32", reason="nobody counts them there")
def test_first_writes_to_memory_are_counted_as_page_faults() -> None:
    before = faults()
    torch.zeros(64 << 20, dtype=torch.uint8).fill_(1)
    # 16,384 of the usual size; fewer where the system hands out larger ones.
    assert faults() - before >= 16


@pytest.mark.skipif(sys.platform == "win32", reason="nobody counts them there")
def test_fresh_page_has_a_positive_cost() -> None:
    assert 0 < fault_ns(torch) < 1e6


def test_measurements_that_lost_their_core_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter([(10_000, 4_000, 2), (900_000, 3_000, 2), (9_000, 500_000, 3)] * 2)
    monkeypatch.setattr(page_faults, "_written_twice", lambda _: next(tries))
    assert fault_ns(torch) == (9_000 - 3_000) / 2
