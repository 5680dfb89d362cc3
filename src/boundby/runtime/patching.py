"""Attributes of torch put aside for something else, and back again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

# By the identity of something in torch: where else it is known, as namespace and name.
_aliases: dict[int, list[tuple[dict[str, Any], str]]] = {}


def tell_of_aliases(before: Collection[str]) -> None:
    """Where packages were imported before anything is swapped, let swaps reach into them.

    Usually torch is changed before anybody else takes things out of it (`from torch.nn.functional
    import dropout`), so that all take what was put there. `before`: the modules that were there
    with torch itself, which never get to see that.
    """
    kinds = (FunctionType, BuiltinFunctionType, type)
    _aliases.clear()
    modules = [
        (name, vars(module))
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
    ]
    known = {
        id(value)
        for name, names in modules
        if name.partition(".")[0] == "torch"
        for value in names.values()
        if issubclass(type(value), kinds)  # without asking a deprecated object for its class
    }
    for module, names in modules:
        if module not in before:
            for name, value in names.items():
                if id(value) in known:
                    _aliases.setdefault(id(value), []).append((names, name))


class PatchSet:
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
