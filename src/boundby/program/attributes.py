"""Attributes of torch put aside for something else, and back again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from boundby.capture.live.arrival import when_imported


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
            if getattr(owner, name) is not ours:
                return
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

        self._undo.append(restore)

    def later(self, undo: Callable[[], None]) -> None:
        """Something else to be undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


@contextlib.contextmanager
def when_torch_arrives(act: Callable[[Any, Swaps], None]) -> Iterator[None]:
    """Change torch as soon as the script has imported it; undone at the end."""
    swaps = Swaps()
    active = [True]

    def arrived(torch: ModuleType) -> None:
        if active[0]:
            act(torch, swaps)

    when_imported("torch", arrived)
    try:
        yield
    finally:
        active[0] = False
        swaps.undo()
