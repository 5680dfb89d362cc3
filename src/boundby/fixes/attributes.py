"""Patches torch as soon as the script has imported it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from boundby.runtime.import_hooks import when_imported
from boundby.runtime.patching import PatchSet

__all__ = ["PatchSet", "when_torch_arrives"]


@contextlib.contextmanager
def when_torch_arrives(act: Callable[[Any, PatchSet], None]) -> Iterator[None]:
    """Call `change` as soon as the script has imported torch; undone at the end."""
    swaps = PatchSet()
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
