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
        # A mark of each thread: the system gives the number of an ended thread to a new one.
        self._marks = threading.local()
        self._chosen = self._first = self._mark_here()
        self._calls: Counter[object] = Counter()
        self._inside: set[object] = set()
        self._has_trained = self._has_updated = False

    @property
    def is_another(self) -> bool:
        """Whether this code runs on another thread."""
        return getattr(self._marks, "mark", None) is not self._chosen

    def called(self) -> None:
        """The thread of the steps calls a model."""
        self._calls[self._chosen] += 1

    def trains(self, *, updates: bool) -> None:
        """It runs a backward pass, or updates a model."""
        self._has_trained = True
        self._has_updated |= updates

    @property
    def may_move(self) -> bool:
        """Whether this thread may take the steps by calling models: not inside such a call."""
        is_open = not self._has_trained and self._chosen is self._first
        return is_open and self._mark_here() not in self._inside

    def calls_elsewhere(self) -> bool:
        """A model is called on another thread; whether that takes the steps from now on."""
        thread = self._mark_here()
        self._calls[thread] += 1
        if self._calls[thread] < max(_FEWEST_CALLS, 2 * self._calls[self._chosen]):
            return False
        self._chosen = thread
        return True

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """During a call on another thread: those of its parts are not calls of a model."""
        thread = self._mark_here()
        self._inside.add(thread)
        try:
            yield
        finally:
            self._inside.discard(thread)

    def updates_elsewhere(self) -> bool:
        """Another thread updates a model; whether that takes the steps from now on."""
        if self._has_updated:
            return False
        self._chosen = self._mark_here()
        return True

    def _mark_here(self) -> object:
        """The mark of the thread that runs this."""
        if not hasattr(self._marks, "mark"):
            self._marks.mark = object()
        mark: object = self._marks.mark
        return mark
