"""How many cores are idle while the program runs, and available to worker processes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from boundby.runtime.cores import cores_at_hand

_CORES = Path("/proc/stat")
_IDLE = (3, 4)  # of its first line: idle, and waiting for disks


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreUse:
    """Counters at one moment, in seconds."""

    at_s: float
    ours_s: float  # CPU time of this process so far, all threads together
    idle_s: float | None  # of all cores of the machine

    def free_cores(self, since: CoreUse) -> float | None:
        """Idle cores between two moments, of those that this process may use."""
        wall_s = self.at_s - since.at_s
        if wall_s <= 0:
            return None
        free = cores_at_hand() - (self.ours_s - since.ours_s) / wall_s
        if self.idle_s is not None and since.idle_s is not None:
            free = min(free, (self.idle_s - since.idle_s) / wall_s)
        return max(0.0, free)


def core_use() -> CoreUse:
    return CoreUse(at_s=time.monotonic(), ours_s=time.process_time(), idle_s=_idle_s())


def _idle_s() -> float | None:
    try:
        ticks = _CORES.read_text().splitlines()[0].split()[1:]
        return sum(float(ticks[at]) for at in _IDLE) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
