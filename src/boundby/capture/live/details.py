"""What only the process itself knows of its calls, from the profiler's own event tree.

A trace file names the function that something was called in, not the line; it leaves the tensors of
a list out, and never says which inputs are the same memory, nor which call made it. The tree has
all four, under the identifiers and at the times that the trace uses.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from boundby.capture.kineto.names import Frame, Origin, frame_of
from boundby.capture.live.arguments import read_arguments

_OPERATOR = "_ExtraFields_TorchOp"
_PYTHON = "_ExtraFields_PyCall"
_BUILTIN = "_ExtraFields_PyCCall"
_ALLOCATION = "_ExtraFields_Allocation"
_ENGINE = "autograd::engine::"


class Line(NamedTuple):
    """A line of the user's, and where in a library it led to, if in one at all."""

    source: str
    in_backward: bool = False  # of Python that the backward itself runs: a hook, a recomputed block
    inside: str | None = None


class Detail:
    """One operator call as the process knows it."""

    __slots__ = ("args", "line", "made", "start_ns")

    def __init__(self, start_ns: int, args: tuple[Any, ...], line: Line | None) -> None:
        self.start_ns = start_ns
        self.args = args
        self.line = line
        self.made: list[tuple[int, int]] = []  # address and size of memory it took


class Details(NamedTuple):
    """Operator calls by the identifier that the trace carries too; lines of other calls by time."""

    operators: dict[int, Detail]
    builtins: dict[int, Line]
    functions: dict[int, Line]  # where Python functions were called


class _Seen(NamedTuple):
    """What the walk through the tree brings together."""

    known: Details
    allocated: dict[int, int]  # the profiler's number of a piece of memory -> its size
    inputs: list[tuple[Detail, Any]]


class _Frame:
    """A Python function that is running: where it has got to, and the user's line around it."""

    __slots__ = ("_at", "file", "line", "outer")

    def __init__(self, file: str, line: int, outer: Line | None) -> None:
        self.file = file
        self.line = line
        self.outer = outer
        self._at: Line | None = self._find()

    def at(self) -> Line | None:
        """The user's line in force: this function's where it is the user's, else its caller's."""
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
    """One for all calls from there, of which there may be millions."""
    return Line(source)


class _Place:
    """Where the walk through the tree is: in which function, operator and node of the backward."""

    __slots__ = ("frame", "node", "operator")

    def __init__(self, frame: _Frame | None, operator: Detail | None, node: Detail | None) -> None:
        self.frame = frame
        self.operator = operator
        self.node = node

    def line(self) -> Line | None:
        """The user's line in force, here or where the backward was asked for."""
        at = self.frame.at() if self.frame else None
        if at is not None:
            return at if self.node is None else at._replace(in_backward=True)
        if self.node is not None and self.node.line is not None:
            return self.node.line._replace(in_backward=False)
        return None


def details(results: Any) -> Details:
    """Everything that the tree of the profiled steps knows."""
    seen = _Seen(Details({}, {}, {}), {}, [])
    start = _Place(None, None, None)
    # Children come in order of time, so that a function's line only ever moves on.
    waiting = [(root, start) for root in reversed(results.experimental_event_tree())]
    while waiting:
        event, place = waiting.pop()
        place = _enter(event, place, seen)
        waiting += [(child, place) for child in reversed(event.children)]
    # Threads come one after the other: only now is all memory known that any of them took.
    for operator, fields in seen.inputs:
        operator.args = read_arguments(fields.inputs, seen.allocated)
    return seen.known


def _enter(event: Any, place: _Place, seen: _Seen) -> _Place:
    """Note what the event tells; and the place that its children are in."""
    fields = event.extra_fields
    kind = type(fields).__name__
    frame = place.frame
    if kind == _OPERATOR:
        operator = Detail(event.start_time_ns, (), place.line())
        seen.known.operators[event.correlation_id] = operator
        seen.inputs.append((operator, fields))
        if event.name.startswith(_ENGINE):
            # The function that waits for the backward does not run what happens in it.
            return _Place(None, operator, operator)
        return _Place(frame, operator, place.node)
    if kind == _ALLOCATION:
        if fields.alloc_size > 0:
            seen.allocated[fields.allocation_id] = fields.alloc_size
            if place.operator is not None:
                place.operator.made.append((fields.ptr, fields.alloc_size))
    elif kind in (_PYTHON, _BUILTIN):
        file, line = _where(fields.caller)
        if frame is not None and frame.file == file:
            frame.move(line)
        if kind == _PYTHON:
            if (at := place.line()) is not None:
                seen.known.functions[event.start_time_ns] = at
            called = _Frame(*_where(fields.callsite), frame.at() if frame else None)
            return _Place(called, place.operator, place.node)
        if (at := place.line()) is not None:
            seen.known.builtins[event.start_time_ns] = at
    return place


def _where(state: Any) -> tuple[str, int]:
    """File and line; nothing where the function's code was freed since (an import)."""
    try:
        return state.file_name, state.line_number
    except UnicodeDecodeError:
        return "", 0
