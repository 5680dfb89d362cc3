"""Detect whether other processes used the CPU while an experiment ran."""

from __future__ import annotations

import time

import psutil

# Use of fewer processors by others is the operating system's own work.
_NOTICED = 0.3


class OtherProcesses:
    """CPU time of other processes since this was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._busy, self._own = _busy_s(), _own_s()

    def words(self) -> str | None:
        """One line, or None if no other process used the machine."""
        elapsed = time.perf_counter() - self._began
        others = (_busy_s() - self._busy) - (_own_s() - self._own)
        processors = others / elapsed if elapsed > 0 else 0.0
        if processors < _NOTICED:
            return None
        return (
            f"other processes kept {processors:.1f} of {psutil.cpu_count() or 1} processors busy "
            "during the experiment"
        )


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - _counted_twice(times))


def _counted_twice(times: object) -> float:
    """Linux counts guests' time as user time already."""
    return float(getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0))


def _own_s() -> float:
    """CPU time of this process and of the children it started, ended or not."""
    process = psutil.Process()
    total = process.cpu_times()
    own = total.user + total.system + total.children_user + total.children_system
    for child in process.children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.Error:
            continue
        own += spent.user + spent.system
    return float(own)
