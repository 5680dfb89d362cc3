"""The CPU cores of this process."""

from __future__ import annotations

import os


def cores_at_hand() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
