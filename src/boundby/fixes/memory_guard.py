"""Ends a variant that keeps more and more memory, before the device runs out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Besides the next block itself, a backward needs about as much as one block keeps, and a margin.
_BLOCKS_AHEAD, _MARGIN = 2, 0.05
_GIB = 2**30  # definition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of a device in bytes. `free`: what the allocator can still provide."""

    allocated: float
    free: float
    total: float


class MemoryGuard:
    """Watches blocks that run one after the other; each keeps about as much as the largest."""

    def __init__(self, read: Callable[[], DeviceMemory | None], error: type[Exception]) -> None:
        self._read = read
        self._error = error
        self._largest = 0.0

    def run(self, block: Callable[[], Any]) -> Any:
        before = self._read()
        if before is None:
            return block()
        needed = _BLOCKS_AHEAD * self._largest + _MARGIN * before.total
        if self._largest and needed > before.free:
            raise self._error(
                f"it would not fit: each block keeps {self._largest / _GIB:.2f} GiB, and "
                f"{before.free / _GIB:.2f} of {before.total / _GIB:.1f} GiB are left"
            )
        result = block()
        after = self._read()
        if after is not None:
            self._largest = max(self._largest, after.allocated - before.allocated)
        return result


def cuda_memory(torch: Any) -> DeviceMemory | None:
    """The memory of the current device; None if none is in use."""
    if not torch.cuda.is_initialized():
        return None
    free, total = torch.cuda.mem_get_info()
    allocated = torch.cuda.memory_allocated()
    cached = torch.cuda.memory_reserved() - allocated
    return DeviceMemory(allocated=allocated, free=free + cached, total=total)
