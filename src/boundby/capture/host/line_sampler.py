"""Samples the line that the script runs, every millisecond while steps are profiled.

The profiler sees calls. A loop that only adds numbers makes none, and between two calls of a
function only sampling shows which of its lines takes the time. A loop is sampled where it jumps
back: its lines are not distinguished. Sampling costs 1 to 3% of a profiled step (2 cores, a step of
Python and small operators), and nothing in clean steps.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from types import CodeType
from typing import NamedTuple

_EVERY_S = 0.001  # sampling interval
# How soon a thread that runs Python without pause releases the interpreter. With Python's default
# of 5 ms, a short function has long reached its call of torch, which releases it anyway: all
# samples would be there.
_SWITCH_S = 0.0001
_MOST = 100_000  # a step may take minutes


class Sample(NamedTuple):
    """The innermost Python function of the sampled thread, with its line."""

    time_ns: int  # in the profiler's clock, which counts from the epoch
    file: str
    function: str
    line: int


class LineSampler:
    """Samples the thread that started it, from a bare thread, which the script's own code does not
    see."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, CodeType, int | None]] = []
        self._running: _thread.LockType | None = None
        self._stopped: _thread.LockType | None = None
        self._switch_s: float | None = None

    def start(self) -> None:
        self._running, self._stopped = _thread.allocate_lock(), _thread.allocate_lock()
        self._running.acquire()
        self._stopped.acquire()
        usual = sys.getswitchinterval()
        if usual > _SWITCH_S:
            self._switch_s = usual
            sys.setswitchinterval(_SWITCH_S)
        _thread.start_new_thread(self._ask, (threading.get_ident(), self._running, self._stopped))

    def stop(self) -> None:
        if self._running is None or self._stopped is None:
            return
        self._running.release()
        # The process may be a fork, which has none of its parent's threads.
        self._stopped.acquire(timeout=1.0)
        self._running = self._stopped = None
        if self._switch_s is not None:
            sys.setswitchinterval(self._switch_s)
            self._switch_s = None

    def samples(self) -> list[Sample]:
        """The samples, in order of time."""
        return [
            Sample(time_ns, code.co_filename, code.co_name, line)
            for time_ns, code, line in self._seen
            if line is not None
        ]

    def _ask(self, thread: int, running: _thread.LockType, stopped: _thread.LockType) -> None:
        seen, frames, clock = self._seen, sys._current_frames, time.time_ns
        try:
            while not running.acquire(timeout=_EVERY_S) and len(seen) < _MOST:
                frame = frames().get(thread)
                if frame is not None:
                    seen.append((clock(), frame.f_code, frame.f_lineno))
                # Keeping a frame would keep the script's tensors.
                del frame
        finally:
            stopped.release()
