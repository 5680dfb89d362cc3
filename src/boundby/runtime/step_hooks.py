"""Those who go along with a running program: told of its parts, and free to change them.

A watcher only looks. Companions are for what changes a program from outside, or compares what two
runs of it compute: they get the values themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar


class StepHook:
    """Told after the watcher, on the thread that runs the steps; each does what it needs."""

    framework: ClassVar[str] = "torch"  # whose programs it goes along with

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An outermost module, compiled function or graph is about to run."""

    def call_ends(self, called: Any, result: Any) -> None:
        """It has returned this."""

    def call_failed(self, called: Any, error: Exception) -> bool:
        """It has raised; True where that was a change of ours, which is undone: call it again."""
        return False

    def backward_begins(self, roots: Any) -> None:
        """Backward is about to run from these tensors."""

    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step."""

    def step_ended(self, kind: str) -> None:
        """A step of the program has ended, of this kind."""

    def optimizer_made(self, optimizer: Any) -> None:
        """An optimizer was constructed, copied or loaded."""


# All who go along now. One script runs at a time, as do those who change it.
active_hooks: list[StepHook] = []


@contextlib.contextmanager
def accompanied_by(companion: StepHook) -> Iterator[None]:
    active_hooks.append(companion)
    try:
        yield
    finally:
        active_hooks.remove(companion)
