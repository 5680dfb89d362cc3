"""The device's clock, as the windows need it: when the work of each step was done."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from boundby.capture.jax import compat

# A wait longer than this means that the device was behind the host.
_BEHIND_NS = 50_000
# So many steps with a completion time of their own give a spread.
_ENOUGH_TIMED = 4


@dataclass(slots=True)
class Mark:
    """The end of a step: on the host, an array that is ready when its work is done, and when that
    was, where the host has waited for it."""

    host_ns: int
    array: Any
    ready_ns: int | None = None
    waited_ns: int = 0


class JaxDevice:
    """Host times where the host sets the pace; completion times where the device is behind.

    Marks neither wait nor use the device. `sync` waits for the marks in their order, so that the
    steps that the device still had queued get the time at which each was complete.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.perf_counter_ns,
        wait_for_all: Callable[[], None] = lambda: None,
    ) -> None:
        """`wait_for_all` is for steps of which no result is known."""
        self._clock = clock
        self._wait_for_all = wait_for_all
        self._latest: Any = None
        self._open: list[Mark] = []

    def completed(self, array: Any) -> None:
        """The latest step's work is done when this array is ready."""
        self._latest = array

    def mark(self) -> Mark:
        mark = Mark(self._clock(), self._latest)
        self._open.append(mark)
        return mark

    def sync(self) -> None:
        marks, self._open = self._open, []
        for mark in marks:
            before = self._clock()
            if _wait(mark.array):
                mark.ready_ns = self._clock()
                mark.waited_ns = mark.ready_ns - before
            mark.array = None
        if self._latest is None:
            self._wait_for_all()
        else:
            _wait(self._latest)

    def between(self, marks: list[Mark]) -> list[float]:
        """Times between consecutive marks in ns."""
        host = [float(b.host_ns - a.host_ns) for a, b in itertools.pairwise(marks)]
        behind = next((at for at, mark in enumerate(marks) if mark.waited_ns > _BEHIND_NS), None)
        last = marks[-1].ready_ns if marks else None
        if behind is None or last is None or not host:
            return host
        timed = [
            float(b.ready_ns - a.ready_ns)
            for a, b in itertools.pairwise(marks[behind:])
            if a.ready_ns is not None and b.ready_ns is not None
        ]
        count = len(host)
        if len(timed) < _ENOUGH_TIMED:
            return [float(last - marks[0].host_ns) / count] * count
        first = marks[behind].ready_ns
        assert first is not None
        earlier = count - len(timed)
        before = [float(first - marks[0].host_ns) / earlier] * earlier if earlier else []
        return before + timed


def _wait(array: Any) -> bool:
    """Wait until an array is ready; False where it was donated meanwhile."""
    if array is None or not compat.is_ready_to_wait(array):
        return False
    try:
        array.block_until_ready()
    except RuntimeError:  # deleted between the two lines, or the script's own failure
        return False
    return True
