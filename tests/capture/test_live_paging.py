"""Fresh pages are counted, and cost something."""

import sys

import pytest
import torch

from boundby.capture.host.page_faults import fault_ns, faults


@pytest.mark.skipif(sys.platform == "win32", reason="nobody counts them there")
def test_memory_that_is_first_written_to_is_counted() -> None:
    before = faults()
    torch.zeros(64 << 20, dtype=torch.uint8).fill_(1)
    # 16,384 of the usual size; fewer where the system hands out larger ones.
    assert faults() - before >= 16


@pytest.mark.skipif(sys.platform == "win32", reason="nobody counts them there")
def test_a_fresh_page_costs_more_than_none() -> None:
    assert 0 < fault_ns(torch) < 1e6
