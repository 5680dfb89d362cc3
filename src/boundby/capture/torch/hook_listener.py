"""What the hooks on torch report."""

from __future__ import annotations

from typing import Any, Protocol


class HookListener(Protocol):
    """Gets a step's parts as they happen, on the thread that runs them."""

    def call_begins(self, called: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An outermost module, compiled function or graph is about to run."""
        ...

    def backward_begins(self) -> None: ...

    def backward_ends(self) -> None: ...

    def optimizer_made(self, optimizer: object) -> None: ...

    def optimizer_begins(self, optimizer: object) -> None: ...

    def optimizer_ends(self, optimizer: object) -> None: ...

    def batch_came(self, waited_ns: int, workers: int, iterator: int | None = None) -> None:
        """A loader with this many worker processes has delivered its next batch.

        `iterator`: the identity of the loader's iterator.
        """
        ...
