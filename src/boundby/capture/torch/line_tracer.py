"""Records which line runs when, during the first profiled step.

torch's profiler records the line of every call, but `a @ b` makes no Python call: the interpreter
enters C directly. Line events (`sys.settrace`) close that gap without replacing any torch type.
They slow Python down, so only the first profiled step has them, which is not used for timing;
`profiler_tree` applies the lines to the same operators of the later steps.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import time
from types import CodeType, FrameType
from typing import Any, NamedTuple

from boundby.capture.own_files import OWN_FOLDER

_MOST = 200_000  # line events; one takes about 150 bytes


class LineMark(NamedTuple):
    """A line begins to run in a function."""

    time_ns: int  # Unix time, which the profiler's event tree uses too
    code: CodeType
    line: int


class LineTrace(NamedTuple):
    """Line events in order of time; none are missing before `end_ns`."""

    marks: list[LineMark]
    end_ns: int


class LineTracer:
    """Line events of the thread that starts it, outside torch, boundby and the standard library."""

    def __init__(self, torch: Any) -> None:
        self._marks: list[tuple[int, CodeType, int]] = []
        self._end_ns = 0
        self._untraced = (f"{torch.__path__[0]}/", OWN_FOLDER, "<frozen")
        self._is_traced = functools.cache(self._decide)
        self._is_running = False

    def start(self) -> None:
        """Does nothing under a debugger or a coverage tool: they own the trace function."""
        if sys.gettrace() is not None:
            return
        hide_from_dynamo()
        self._is_running = True
        sys.settrace(self._on_call)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self._is_traced(frame.f_code):
                frame.f_trace = self._on_line
            frame = frame.f_back

    def stop(self) -> None:
        if not self._is_running:
            return
        self._is_running = False
        self._end_ns = time.time_ns()
        if sys.gettrace() == self._on_call:
            sys.settrace(None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace == self._on_line:
                frame.f_trace = None
            frame = frame.f_back

    @property
    def trace(self) -> LineTrace:
        return LineTrace([LineMark(*mark) for mark in self._marks], self._end_ns)

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._on_line if self._is_traced(frame.f_code) else None

    def _on_line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event != "line":
            return self._on_line
        if not self._is_running:
            return None
        self._marks.append((time.time_ns(), frame.f_code, frame.f_lineno))
        if len(self._marks) >= _MOST:
            self.stop()
        return self._on_line

    def _decide(self, code: CodeType) -> bool:
        # Not a Python function: Dynamo would inspect its frame.
        file = code.co_filename
        if file.startswith(self._untraced):
            return False
        if "site-packages" in file or "dist-packages" in file:
            return True
        return not file.startswith(_STANDARD_LIBRARY)


def hide_from_dynamo() -> None:
    """Exclude boundby's frames from Dynamo, if it is loaded: it would try to compile them."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is not None:
        for function in (LineTracer._on_call, LineTracer._on_line, LineTracer._decide):
            dynamo.skip_code(function.__code__)


_STANDARD_LIBRARY = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
