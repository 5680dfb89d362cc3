"""What only the process itself knows about its calls, from the profiler's own event tree.

A trace file has the function of a call, not the line; it leaves the tensors of a list out, and does
not say which inputs are the same memory, nor which call allocated it. The tree has all four, with
the identifiers and times of the trace.
"""

from __future__ import annotations

import bisect
import functools
from collections import Counter
from typing import Any, NamedTuple

from boundby.capture.kineto.names import Frame, Origin, frame_of
from boundby.capture.torch.arguments import read_arguments
from boundby.capture.torch.line_tracer import LineMark, LineTrace

_OPERATOR = "_ExtraFields_TorchOp"
_PYTHON = "_ExtraFields_PyCall"
_BUILTIN = "_ExtraFields_PyCCall"
_ALLOCATION = "_ExtraFields_Allocation"
_ENGINE = "autograd::engine::"


class Line(NamedTuple):
    """A line of the user's, and the line of a library that it led to, if any."""

    source: str
    in_backward: bool = False  # Python that the backward itself runs: a hook, a recomputed block
    inside: str | None = None


class Detail:
    """One operator call as the process knows it."""

    __slots__ = ("args", "line", "made", "start_ns")

    def __init__(self, start_ns: int, args: tuple[Any, ...], line: Line | None) -> None:
        self.start_ns = start_ns
        self.args = args
        self.line = line
        self.made: list[tuple[int, int]] = []  # address and size of memory it allocated


class Details(NamedTuple):
    """Operator calls by the identifier in the trace; lines of other calls by time."""

    operators: dict[int, Detail]
    builtins: dict[int, Line]
    functions: dict[int, Line]  # the lines from which Python functions were called


class _Seen(NamedTuple):
    """Collects what is found in the tree."""

    known: Details
    allocated: dict[int, int]  # the profiler's number of an allocation -> its size
    inputs: list[tuple[Detail, Any]]
    operator_lines: _OperatorLines


class _Frame:
    """A running Python function: its current line, and the user's line around it."""

    __slots__ = (
        *("_at", "call_line", "file", "function", "line", "operators", "outer", "since_ns"),
        "within",
    )

    def __init__(
        self,
        place: tuple[str, int, str],
        *,
        outer: Line | None,
        within: Detail | None,
        since_ns: int,
    ) -> None:
        self.file, self.line, self.function = place
        self.outer = outer
        self.within = within  # the operator that calls it: a node of the backward
        self.since_ns = since_ns  # since then its own code runs again
        self.call_line = self.line  # the line of the last call that it made
        self.operators = 0  # since that call
        self._at: Line | None = self._find()

    def calls(self, line: int, until_ns: int) -> None:
        self.call_line = line
        self.since_ns = until_ns
        self.operators = 0
        self.move(line)

    def at(self) -> Line | None:
        """The current user's line: this function's if it is the user's, else its caller's."""
        return self._at

    def move(self, line: int) -> None:
        if line != self.line:
            self.line = line
            self._at = self._find()

    def _find(self) -> Line | None:
        frame = _frame(self.file, self.line)
        if frame.origin is Origin.USER:
            return _user_line(frame.source)
        if frame.origin is Origin.LIBRARY and self.outer is not None:
            return self.outer._replace(inside=frame.source)
        return self.outer


@functools.cache
def _frame(file: str, line: int) -> Frame:
    return frame_of(f"{file}({line}): ")


@functools.cache
def _user_line(source: str) -> Line:
    """One object for all calls from there, of which there may be millions."""
    return Line(source)


class _OperatorLines:
    """Lines of operators that make no Python call (`a @ b`), known from line events.

    Only the first profiled step has line events. In later steps, an operator has the line of the
    same operator there: the same function, after the same call, with the same name, the same number
    of operators since that call.
    """

    def __init__(self, trace: LineTrace | None) -> None:
        self._marks = trace.marks if trace else []
        self._times = [mark.time_ns for mark in self._marks]
        self._end_ns = trace.end_ns if trace and trace.marks else 0
        self._learned: dict[tuple[str, str, int, str, int], list[int]] = {}
        self._used: Counter[tuple[str, str, int, str, int]] = Counter()

    def move(self, frame: _Frame, name: str, start_ns: int) -> None:
        """Set the function's line to that of this operator, if known."""
        key = (frame.file, frame.function, frame.call_line, name, frame.operators)
        frame.operators += 1
        if start_ns < self._end_ns:
            mark = self._latest(frame, start_ns)
            if mark is not None:
                frame.move(mark.line)
            self._learned.setdefault(key, []).append(frame.line)
        elif key in self._learned:
            lines = self._learned[key]
            frame.move(lines[self._used[key] % len(lines)])
            self._used[key] += 1

    def _latest(self, frame: _Frame, start_ns: int) -> LineMark | None:
        at = bisect.bisect_right(self._times, start_ns) - 1
        if at < 0 or self._times[at] < frame.since_ns:
            return None
        mark = self._marks[at]
        # From another function, which ran and ended without a call that the profiler saw.
        if mark.code.co_name != frame.function:
            return None
        return mark if mark.code.co_filename.replace("\\", "/").endswith(frame.file) else None


class _Place:
    """The position in the tree: the function, operator and node of the backward."""

    __slots__ = ("frame", "node", "operator")

    def __init__(self, frame: _Frame | None, operator: Detail | None, node: Detail | None) -> None:
        self.frame = frame
        self.operator = operator
        self.node = node

    def line(self) -> Line | None:
        """The current user's line, here or where the backward was called."""
        at = self.frame.at() if self.frame else None
        if at is not None:
            return at if self.node is None else at._replace(in_backward=True)
        if self.node is not None and self.node.line is not None:
            return self.node.line._replace(in_backward=False)
        return None


def read_profiler_tree(results: Any, trace: LineTrace | None = None) -> Details:
    """Read the tree of the profiled steps."""
    seen = _Seen(Details({}, {}, {}), {}, [], _OperatorLines(trace))
    start = _Place(None, None, None)
    # Children come in order of time, so a function's line only moves forward.
    waiting = [(root, start) for root in reversed(results.experimental_event_tree())]
    while waiting:
        event, place = waiting.pop()
        place = _enter(event, place, seen)
        waiting += [(child, place) for child in reversed(event.children)]
    # Threads come one after the other: only now is all memory known that any of them allocated.
    for operator, fields in seen.inputs:
        operator.args = read_arguments(fields.inputs, seen.allocated)
    return seen.known


def _enter(event: Any, place: _Place, seen: _Seen) -> _Place:
    """Record the event; return the position of its children."""
    fields = event.extra_fields
    kind = type(fields).__name__
    frame = place.frame
    if kind == _OPERATOR:
        if frame is not None and place.operator is frame.within:
            seen.operator_lines.move(frame, event.name, event.start_time_ns)
        operator = Detail(event.start_time_ns, (), place.line())
        seen.known.operators[event.correlation_id] = operator
        seen.inputs.append((operator, fields))
        if event.name.startswith(_ENGINE):
            # The function that waits for the backward does not run its operators.
            return _Place(None, operator, operator)
        return _Place(frame, operator, place.node)
    if kind == _ALLOCATION:
        if fields.alloc_size > 0:
            seen.allocated[fields.allocation_id] = fields.alloc_size
            if place.operator is not None:
                place.operator.made.append((fields.ptr, fields.alloc_size))
    elif kind in (_PYTHON, _BUILTIN):
        file, line, _ = _where(fields.caller)
        if frame is not None and frame.file == file:
            frame.calls(line, event.end_time_ns)
        if kind == _PYTHON:
            if (at := place.line()) is not None:
                seen.known.functions[event.start_time_ns] = at
            outer = frame.at() if frame else None
            called = _Frame(
                _where(fields.callsite),
                outer=outer,
                within=place.operator,
                since_ns=event.start_time_ns,
            )
            return _Place(called, place.operator, place.node)
        if (at := place.line()) is not None:
            seen.known.builtins[event.start_time_ns] = at
    return place


def _where(state: Any) -> tuple[str, int, str]:
    """File, line and function; empty if the function's code was freed since (an import)."""
    try:
        return state.file_name, state.line_number, state.function_name
    except UnicodeDecodeError:
        return "", 0, ""
