"""Blocks that keep activations are stopped before the memory ends, on made-up devices."""

import pytest

from boundby.fixes.memory_guard import DeviceMemory, MemoryGuard

GIB = float(2**30)


class Device:
    def __init__(self, gib: float) -> None:
        self.total, self.allocated = gib * GIB, 10 * GIB

    def read(self) -> DeviceMemory:
        free = self.total - self.allocated
        return DeviceMemory(allocated=self.allocated, free=free, total=self.total)

    def block(self) -> str:
        self.allocated += 4 * GIB
        return "result"


def test_blocks_that_fit_are_run() -> None:
    device = Device(80.0)
    guard = MemoryGuard(device.read, MemoryError)
    assert [guard.run(device.block) for _ in range(10)] == ["result"] * 10


def test_blocks_that_would_fill_memory_are_stopped() -> None:
    device = Device(40.0)
    guard = MemoryGuard(device.read, MemoryError)
    with pytest.raises(MemoryError, match=r"each block keeps 4\.00 GiB, and 6\.00 of 40\.0 GiB"):
        for _ in range(10):
            guard.run(device.block)
    assert device.allocated < device.total


def test_memory_is_not_checked_without_a_device() -> None:
    assert MemoryGuard(lambda: None, MemoryError).run(lambda: 1) == 1
