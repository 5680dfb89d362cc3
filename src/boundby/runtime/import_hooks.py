"""Calls a function when a script imports a module, without importing it earlier.

Scripts set OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES and similar variables before they import torch.
Importing it earlier would make those settings ineffective.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def when_imported(name: str, act: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call `act` with the module: now if it is already loaded, otherwise right after its import.

    Returns a function that cancels this.
    """
    if name in sys.modules:
        act(sys.modules[name])
        return lambda: None
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)

    def stop() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    return stop


class _Finder(importlib.abc.MetaPathFinder):
    """First in `sys.meta_path` until the module is loaded; finding its spec does not load it."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._act = act
        self._asking = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._loaded)
        return spec

    def _loaded(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._act(module)


class _Loader(importlib.abc.Loader):
    """The module's own loader, which calls a function after loading."""

    def __init__(self, own: importlib.abc.Loader, act: Callable[[ModuleType], None]) -> None:
        self._own = own
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._act(module)
