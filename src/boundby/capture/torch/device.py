"""The device's clock for the windows; torch is the script's own."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on the host and, if the script uses CUDA, in the device's stream."""

    host_ns: int
    event: Any


class TorchDevice:
    """CUDA events if the script uses CUDA, otherwise the host's clock."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    @property
    def is_cuda(self) -> bool:
        # Not is_available, which counts the devices each time: this is called at every phase.
        return bool(self._torch.cuda.is_initialized())

    @property
    def is_capturing(self) -> bool:
        """Whether the script is capturing a CUDA graph: boundby's syncs and events would break
        it."""
        return self.is_cuda and bool(self._torch.cuda.is_current_stream_capturing())

    @property
    def peak_bytes(self) -> int | None:
        """The peak of memory in use, by the script's own counters."""
        return int(self._torch.cuda.max_memory_allocated()) if self.is_cuda else None

    def mark(self) -> Mark:
        event = None
        if self.is_cuda:
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
        return Mark(time.perf_counter_ns(), event)

    def between(self, marks: list[Mark]) -> list[float]:
        return [self._elapsed(*pair) for pair in itertools.pairwise(marks)]

    def _elapsed(self, earlier: Mark, later: Mark) -> float:
        if earlier.event is not None and later.event is not None:
            try:
                return float(earlier.event.elapsed_time(later.event)) * 1e6
            except (RuntimeError, ValueError):  # recorded on two devices
                pass
        return float(later.host_ns - earlier.host_ns)

    def sync(self) -> None:
        if self.is_cuda:
            self._torch.cuda.synchronize()
