"""Runs a program with other files in place of some of its own."""

from __future__ import annotations

import importlib.machinery
import linecache
import tokenize
from collections.abc import Mapping
from typing import Any

from boundby.runtime.patching import PatchSet


def replace_sources(sources: Mapping[str, str]) -> None:
    """Make Python read the second file of each pair in place of the first.

    Paths are unchanged for the program: its folder, its `__file__`, its neighbours.
    """
    for path, other in sources.items():
        # For `inspect.getsource`, which compilers of kernels use. Without a time the entry is kept.
        with tokenize.open(other) as file:
            lines = file.readlines()
        linecache.cache[path] = (sum(map(len, lines)), None, lines, path)
    swaps = PatchSet()
    loader = importlib.machinery.SourceFileLoader

    def reading(original: Any) -> Any:
        def get_data(self: Any, path: str) -> bytes:
            return original(self, sources.get(path, path))  # type: ignore[no-any-return]

        return get_data

    def dating(original: Any) -> Any:
        def path_stats(self: Any, path: str) -> Any:
            if path in sources:
                raise OSError(f"{path} has no compiled form")  # Python then compiles the text
            return original(self, path)

        return path_stats

    swaps.swap(loader, "get_data", reading)
    swaps.swap(loader, "path_stats", dating)
