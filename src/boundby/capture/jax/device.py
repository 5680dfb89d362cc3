"""The device's clock, as the windows need it: when the work of each step was done."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from boundby.capture.jax import compat

# A wait longer than this means that the device was behind the host.
_BEHIND_NS = 50_000


@dataclass(slots=True)
class Mark:
    """The end of a step on the host, with an array that is ready when the step's work is done, and
    the time when it was ready if the host has waited for it. `in_time`: the work of the step before
    was done before the host ended this one. `seen_ns`: when the host saw that its work was done,
    at the end of the next step."""

    host_ns: int
    array: Any
    ready_ns: int | None = None
    waited_ns: int = 0
    in_time: bool = False
    seen_ns: int | None = None


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
        self.waited_ns = 0  # for the device, in all

    def completed(self, array: Any) -> None:
        """The latest step's work is done when this array is ready."""
        self._latest = array

    def mark(self) -> Mark:
        before = self._open[-1] if self._open else None
        was_idle = before is not None and before.array is not None and compat.is_ready(before.array)
        mark = Mark(self._clock(), self._latest)
        if before is not None and was_idle:
            before.seen_ns = mark.host_ns
            # Before the first step the device was idle, whatever it does in the others.
            mark.in_time = before is not self._open[0]
        self._open.append(mark)
        return mark

    def sync(self) -> None:
        began = self._clock()
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
        self.waited_ns += self._clock() - began

    def between(self, marks: list[Mark]) -> list[float]:
        """Times between consecutive marks in ns."""
        host = [float(b.host_ns - a.host_ns) for a, b in itertools.pairwise(marks)]
        last = marks[-1].ready_ns if marks else None
        if not host or last is None or all(mark.waited_ns <= _BEHIND_NS for mark in marks):
            return host
        # A step's completion is known where the device was not a step behind the host, and where
        # the host waited for it, unless the host woke so late that the next one was complete too.
        # Steps between two known times share that time.
        known = [(0, marks[0].host_ns)]
        pace_ns = _pace_ns(marks)
        for at, (mark, after) in enumerate(itertools.pairwise(marks)):
            if at and mark.in_time:
                known.append((at, mark.host_ns))
            elif at and mark.seen_ns is not None:
                # During the next step the host either paused, or waited for the queued steps.
                since, began = known[-1]
                queued = began + round((at - since) * pace_ns)
                known.append((at, min(mark.seen_ns, max(mark.host_ns, queued))))
            elif (
                at
                and mark.ready_ns is not None
                and min(mark.waited_ns, after.waited_ns) > _BEHIND_NS
            ):
                known.append((at, mark.ready_ns))
        known.append((len(host), last))
        times: list[float] = []
        for (since, began), (until, ended) in itertools.pairwise(known):
            times += [float(ended - began) / (until - since)] * (until - since)
        return times


def _pace_ns(marks: list[Mark]) -> float:
    """The usual time between two completions that the host waited for; 0 without any."""
    times = [
        after.ready_ns - mark.ready_ns
        for mark, after in itertools.pairwise(marks)
        if mark.ready_ns is not None
        and after.ready_ns is not None
        and min(mark.waited_ns, after.waited_ns) > _BEHIND_NS
    ]
    return statistics.median(times) if times else 0.0


def _wait(array: Any) -> bool:
    """Wait until an array is ready; False where it was donated meanwhile."""
    if array is None or not compat.is_ready_to_wait(array):
        return False
    try:
        array.block_until_ready()
    except RuntimeError:  # deleted between the two lines, or the script's own failure
        return False
    return True
