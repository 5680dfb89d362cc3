"""Loops of the script that handle the items of a list one at a time, none of which needs the result
of another."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from boundby.capture.torch.evidence.places import user_line

_MOST_LINES = 4  # of the script's, between a call and its loop
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Loop = ast.For | ast.While | _Comprehension


def items_around(frame: FrameType | None) -> int:
    """How many items the innermost loop around a line of the script goes through; 0 if there is
    none, its items have no number, or one may need what was made of another.

    A comprehension gathers the results of all items. A `for` counts if its items have a shape and
    it reads nothing that an earlier round has bound.
    """
    lines = 0
    while frame is not None and lines < _MOST_LINES:
        if user_line(frame.f_code, frame.f_lineno) is not None:
            lines += 1
            loop = _loop_at(frame.f_code.co_filename, frame.f_lineno)
            if loop is not None:
                return _number(loop, frame)
        frame = frame.f_back
    return 0


def _number(loop: _Loop, frame: FrameType) -> int:
    items = None if isinstance(loop, ast.While) else _items(loop, frame)
    if items is None or not len(items) or hasattr(items[0], "parameters"):
        return 0
    is_apart = not isinstance(loop, ast.For) or _is_apart(loop, items)
    return len(items) if is_apart else 0


@functools.cache
def _loop_at(file: str, line: int) -> _Loop | None:
    """The innermost loop around a line, within its function."""
    try:
        node: ast.AST = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    loop: _Loop | None = None
    while True:
        inner = next((one for one in _children(node) if _spans(one, line)), None)
        if inner is None:
            return loop
        if isinstance(inner, _FUNCTIONS):
            loop = None
        elif isinstance(inner, (ast.For, ast.While, *_COMPREHENSIONS)):
            loop = inner
        node = inner


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in it that have lines: some, such as a comprehension's parts, have none."""
    for one in ast.iter_child_nodes(node):
        if hasattr(one, "lineno"):
            yield one
        else:
            yield from _children(one)


def _spans(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if first is None or last is None or not first <= line <= last:
        return False
    # Of several expressions at a line the one with the loop is wanted.
    one_line = first == last and not isinstance(node, ast.stmt)
    return not one_line or any(isinstance(one, _COMPREHENSIONS) for one in ast.walk(node))


def _items(loop: ast.For | _Comprehension, frame: FrameType) -> Any:
    """What the loop goes through, if it has a length."""
    source = loop.iter if isinstance(loop, ast.For) else loop.generators[-1].iter
    names: dict[str, Any] = dict(frame.f_globals)
    if not isinstance(loop, ast.For) and frame.f_back is not None:
        # Before Python 3.12 a comprehension has a frame of its own.
        names |= frame.f_back.f_locals
    names |= frame.f_locals
    for node in ast.walk(source):
        found = _value(node, names)
        if isinstance(found, list | tuple) or (hasattr(found, "shape") and len(found.shape)):
            return found
    return None


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """The value of a name, of a plain attribute or of a key; nothing of the script's is run."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, names), "__dict__", {}).get(node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        holder = _value(node.value, names)
        return holder.get(node.slice.value) if type(holder) is dict else None
    return None


def _is_apart(loop: ast.For, items: Any) -> bool:
    """Whether the items of a `for` are data, and no round reads what an earlier one has bound."""
    if not hasattr(items, "shape") and not hasattr(items[0], "shape"):
        return False
    bound: set[str] = set()
    early: set[str] = set()
    for statement in loop.body:
        stored = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                return False
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                stored.add(node.id)
        reads = (one for one in ast.walk(statement) if isinstance(one, ast.Name))
        early |= {one.id for one in reads if isinstance(one.ctx, ast.Load)} - bound
        bound |= stored if not isinstance(statement, ast.AugAssign) else set()
    return not early & bound
