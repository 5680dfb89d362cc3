"""Attributes of torch put aside for something else, and back again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class Swaps:
    """Attributes that were replaced; `undo` restores those that nobody has replaced since."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def swap(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by what `around` makes of it; a missing one is passed over."""
        original = getattr(owner, name, None)
        if original is None:
            return
        inherited = isinstance(owner, type) and name not in vars(owner)
        ours = around(original)
        setattr(owner, name, ours)

        def restore() -> None:
            # What somebody has wrapped since is left to them. A descriptor of ours may give
            # out the original: what is asked for is what stands there.
            if inspect.getattr_static(owner, name, None) is not ours:
                return
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

        self._undo.append(restore)

    def later(self, undo: Callable[[], None]) -> None:
        """Something else to be undone."""
        self._undo.append(undo)

    def __len__(self) -> int:
        return len(self._undo)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()
