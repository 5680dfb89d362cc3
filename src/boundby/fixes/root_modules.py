"""Changes the outermost modules of a program, each once, right before its first call."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from boundby.runtime.modules import parameters_of
from boundby.runtime.step_hooks import StepHook, step_hook_active

# Changes a module; returns how to undo it, or None if it was not changed.
Edit = Callable[[Any, tuple[Any, ...], dict[str, Any]], Callable[[], None] | None]


class _Outermost(StepHook):
    def __init__(self, change: Edit) -> None:
        self.undo: list[Callable[[], None]] = []
        self._change = change
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not hasattr(called, "named_parameters") or called in self._seen:
            return
        self._seen.add(called)
        # A loss written as a module has nothing to change.
        if next(parameters_of(called), None) is None:
            return
        undo = self._change(called, args[1:], kwargs)
        if undo is not None:
            self.undo.append(undo)


@contextlib.contextmanager
def outermost_modules(change: Edit) -> Iterator[None]:
    """Apply `change` to every outermost module that has parameters."""
    hook = _Outermost(change)
    try:
        with step_hook_active(hook):
            yield
    finally:
        while hook.undo:
            hook.undo.pop()()
