"""Replaces attributes of torch, and restores them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

# By the identity of a torch object: other places that refer to it, as namespace and name.
_aliases: dict[int, list[tuple[dict[str, Any], str]]] = {}


def record_aliases(before: Collection[str]) -> None:
    """Record where else objects of torch are referenced, so that swaps replace those references
    too.

    Needed if packages were imported before the first swap; otherwise their imports (`from
    torch.nn.functional import dropout`) get the replacement. `before`: the modules loaded with
    torch itself, which do not need it.
    """
    kinds = (FunctionType, BuiltinFunctionType, type)
    _aliases.clear()
    modules = [
        (name, vars(module))
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
    ]
    original_ids = {
        id(value)
        for name, names in modules
        if name.partition(".")[0] == "torch"
        for value in names.values()
        # not isinstance, which asks a deprecated object for its class
        if issubclass(type(value), kinds)
    }
    for module, names in modules:
        if module not in before:
            for name, value in names.items():
                if id(value) in original_ids:
                    _aliases.setdefault(id(value), []).append((names, name))


class PatchSet:
    """Replaced attributes; `undo` restores those that were not replaced again since."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def swap(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by what `around` returns for it; a missing attribute is skipped."""
        original = getattr(owner, name, None)
        if original is None:
            return
        inherited = isinstance(owner, type) and name not in vars(owner)
        ours = around(original)
        setattr(owner, name, ours)
        aliased = []
        if isinstance(owner, ModuleType):
            for names, alias in _aliases.get(id(original), ()):
                if names.get(alias) is original:
                    names[alias] = ours
                    aliased.append((names, alias))

        def restore() -> None:
            for names, alias in aliased:
                if names.get(alias) is ours:
                    names[alias] = original
            # An attribute that other code has wrapped since is left unchanged. A descriptor of
            # boundby may return the original, so the attribute itself is compared.
            if inspect.getattr_static(owner, name, None) is not ours:
                return
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

        self._undo.append(restore)

    def later(self, undo: Callable[[], None]) -> None:
        """Add a function that `undo` calls."""
        self._undo.append(undo)

    def __len__(self) -> int:
        return len(self._undo)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()
