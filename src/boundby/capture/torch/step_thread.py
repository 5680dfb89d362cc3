"""The thread that takes a script's steps."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

# Another thread than the script's first takes the steps from this call of a model on, if it has
# also called models twice as often: a service may warm its model up before it starts workers.
_FEWEST_CALLS = 3


class StepThread:
    """At first the one that created this; once, another that calls models or trains in its
    place."""

    def __init__(self) -> None:
        self.ident = self._first = threading.get_ident()
        self._calls: Counter[int] = Counter()
        self._inside: set[int] = set()
        self._has_trained = self._has_updated = False

    @property
    def is_another(self) -> bool:
        """Whether this code runs on another thread."""
        return threading.get_ident() != self.ident

    def called(self) -> None:
        """The thread of the steps calls a model."""
        self._calls[self.ident] += 1

    def trains(self, *, updates: bool) -> None:
        """It runs a backward pass, or updates a model."""
        self._has_trained = True
        self._has_updated |= updates

    @property
    def may_move(self) -> bool:
        """Whether this thread may take the steps by calling models: not inside such a call."""
        is_open = not self._has_trained and self.ident == self._first
        return is_open and threading.get_ident() not in self._inside

    def calls_elsewhere(self) -> bool:
        """A model is called on another thread; whether that takes the steps from now on."""
        thread = threading.get_ident()
        self._calls[thread] += 1
        if self._calls[thread] < max(_FEWEST_CALLS, 2 * self._calls[self.ident]):
            return False
        self.ident = thread
        return True

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """During a call on another thread: those of its parts are not calls of a model."""
        thread = threading.get_ident()
        self._inside.add(thread)
        try:
            yield
        finally:
            self._inside.discard(thread)

    def updates_elsewhere(self) -> bool:
        """Another thread updates a model; whether that takes the steps from now on."""
        if self._has_updated:
            return False
        self.ident = threading.get_ident()
        return True
