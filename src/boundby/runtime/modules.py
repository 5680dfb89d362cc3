"""What a module of torch holds, read past its class.

Classes of scripts redefine `parameters` and its relatives: with arguments of their own, returning
lists, or only what they train.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def parameters_of(module: Any) -> Iterator[Any]:
    """Every parameter of a module and its parts, once."""
    return _held(module, "_parameters")


def buffers_of(module: Any) -> Iterator[Any]:
    """Every buffer of a module and its parts, once."""
    return _held(module, "_buffers")


def parts_of(module: Any) -> Iterator[Any]:
    """A module and every module inside it, once."""
    seen: set[int] = set()
    waiting = [module]
    while waiting:
        part = waiting.pop()
        if part is not None and id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting.extend(reversed(list(part._modules.values())))


def _held(module: Any, kind: str) -> Iterator[Any]:
    seen: set[int] = set()
    for part in parts_of(module):
        for tensor in getattr(part, kind).values():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor
