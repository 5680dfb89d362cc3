"""Exceptions that are recorded instead of ending a diagnosis."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from contextvars import ContextVar


class Failures:
    """The first traceback of each failing name, while failures are collected."""

    def __init__(self, name: str) -> None:
        self._collected: ContextVar[dict[str, str] | None] = ContextVar(name, default=None)

    @contextlib.contextmanager
    def collected(self) -> Iterator[dict[str, str]]:
        tracebacks: dict[str, str] = {}
        token = self._collected.set(tracebacks)
        try:
            yield tracebacks
        finally:
            self._collected.reset(token)

    def note(self, name: str) -> bool:
        """Record the exception being handled; False if it is to be raised."""
        tracebacks = self._collected.get()
        if tracebacks is None:
            return False
        tracebacks.setdefault(name, traceback.format_exc())
        return True
