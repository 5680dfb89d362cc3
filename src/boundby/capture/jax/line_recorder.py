"""Records which line of the script runs when, during the first profiled step.

XLA's profile has the calls of compiled functions without the lines that made them, and no other
Python code. Line events (`sys.settrace`) provide both. They slow Python down, so only the first
profiled step has them, which is not used for timing; `host_lines` puts the lines into the others.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

from boundby.capture.jax.places import Place
from boundby.capture.kineto.names import Origin, origin_of

_MOST = 200_000  # events

_Callers = tuple[Place, ...]


class LineMark(NamedTuple):
    """The time at which a line of the user's, or a function it calls, begins to run. `outer`: the
    line of the step's loop that led to it, if it is another."""

    time_ns: int
    file: str
    function: str
    line: int
    outer: Place | None = None


class LineRecord(NamedTuple):
    """The marks of one step in order of time; its begin and end by the same clock."""

    marks: list[LineMark]
    start_ns: int
    end_ns: int


class LineRecorder:
    """Line events of the thread that starts it, in files that belong to no library."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._marks: list[tuple[int, CodeType, int, _Callers]] = []
        self._latest: FrameType | None = None
        self._callers: _Callers = ()  # of the latest frame
        self._start_ns = self._end_ns = 0
        self._is_users = functools.cache(
            lambda code: origin_of(code.co_filename) is Origin.USER,
        )
        self._is_running = False

    def start(self) -> None:
        """Does nothing under a debugger or a coverage tool: they own the trace function."""
        if sys.gettrace() is not None:
            return
        self._is_running = True
        self._start_ns = self._clock()
        frame: FrameType | None = sys._getframe(1)
        self._mark(self._nearest(frame))
        while frame is not None:
            if self._is_users(frame.f_code):
                frame.f_trace = self._on_event
            frame = frame.f_back
        sys.settrace(self._on_call)

    def stop(self) -> None:
        if not self._is_running:
            return
        self._is_running = False
        self._end_ns = self._clock()
        if sys.gettrace() == self._on_call:
            sys.settrace(None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace == self._on_event:
                frame.f_trace = None
            frame = frame.f_back
        self._latest = None

    @property
    def record(self) -> LineRecord | None:
        """The record; None if nothing was recorded until its end."""
        if not self._end_ns:
            return None
        # The function with the loop is the outermost one that runs lines of its own.
        depth = min((len(callers) for *_, callers in self._marks), default=0)
        marks = [
            LineMark(
                time_ns,
                code.co_filename,
                code.co_name,
                line,
                callers[-1 - depth] if len(callers) > depth else None,
            )
            for time_ns, code, line, callers in self._marks
        ]
        return LineRecord(marks, self._start_ns, self._end_ns)

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._on_event if self._is_users(frame.f_code) else None

    def _on_event(self, frame: FrameType, event: str, arg: object) -> Any:
        if not self._is_running:
            return None
        if event == "line":
            self._mark(frame)
        elif event == "return":
            self._mark(self._nearest(frame.f_back))
        return self._on_event

    def _nearest(self, frame: FrameType | None) -> FrameType | None:
        """The innermost function of the user's."""
        while frame is not None and not self._is_users(frame.f_code):
            frame = frame.f_back
        return frame

    def _mark(self, frame: FrameType | None) -> None:
        if frame is not None and len(self._marks) < _MOST:
            if frame is not self._latest:
                self._latest, self._callers = frame, self._callers_of(frame)
            self._marks.append((self._clock(), frame.f_code, frame.f_lineno, self._callers))

    def _callers_of(self, frame: FrameType) -> _Callers:
        """The lines of the user's that led to a function, the innermost first."""
        found = []
        outer = self._nearest(frame.f_back)
        while outer is not None:
            found.append((outer.f_code.co_filename, outer.f_lineno))
            outer = self._nearest(outer.f_back)
        return tuple(found)
