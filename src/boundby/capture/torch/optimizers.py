"""Finds the optimizer that a function steps: once compiled, its step is not seen from outside."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

# Returns the optimizer that a call with these arguments steps.
Found = Callable[..., object | None]


def optimizer_of(function: Any, optimizer_class: type) -> Found | None:
    """The optimizer whose `step` this is, also through a learning-rate schedule's wrapper."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, optimizer_class) and function.__name__ == "step":
        return _remembering(weakref.ref(owner))
    if hasattr(function, "_wrapped_by_lr_sched"):
        for value in _closed_over(function):
            if isinstance(value, weakref.ref) and isinstance(value(), optimizer_class):
                return _remembering(value)
    return None


def _remembering(reference: weakref.ref[Any]) -> Found:
    return lambda *_: reference()


def optimizer_in(function: Any, optimizer_class: type) -> Found | None:
    """An optimizer that the function's own code steps; it may not exist before the function is
    called."""
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if not isinstance(code, types.CodeType) or "step" not in code.co_names:
        return None

    def find(*args: Any) -> object | None:
        owner = getattr(function, "__self__", args[0] if args else None)
        for value in _reached(plain, code, owner):
            if isinstance(value, optimizer_class):
                return value
        return None

    return find


def _reached(plain: Any, code: types.CodeType, owner: Any) -> Iterator[Any]:
    """The values of the code's names: closure variables, globals, or attributes of its object."""
    yield from _closed_over(plain)
    for holder in (plain.__globals__, getattr(owner, "__dict__", {})):
        for name in code.co_names:
            if name in holder:
                yield holder[name]


def _closed_over(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
