"""Hooks for the parts of a running program: its calls, backward passes, updates and steps.

A watcher only observes. Step hooks also get the values: they change a program from outside, or
compare the results of two runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar


class StepHook:
    """Called after the watcher, on the thread that runs the steps. Override what is needed."""

    framework: ClassVar[str] = "torch"  # of the programs that it is called for

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An outermost module, compiled function or graph is about to run."""

    def call_ends(self, called: Any, result: Any) -> None:
        """An outermost call has returned `result`."""

    def call_failed(self, called: Any, error: Exception) -> bool:
        """An outermost call has raised. Return True to repeat it: a change of boundby caused the
        error and was undone."""
        return False

    def backward_begins(self, roots: Any) -> None:
        """Backward is about to run from these tensors."""

    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step."""

    def step_ended(self, kind: str) -> None:
        """A step of the program has ended, of this kind."""

    def optimizer_made(self, optimizer: Any) -> None:
        """An optimizer was constructed, copied or loaded."""


# The hooks that are called now. One script runs at a time.
active_hooks: list[StepHook] = []


@contextlib.contextmanager
def step_hook_active(hook: StepHook) -> Iterator[None]:
    active_hooks.append(hook)
    try:
        yield
    finally:
        active_hooks.remove(hook)
