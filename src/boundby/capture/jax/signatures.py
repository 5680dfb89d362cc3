"""What a compiled function is compiled for: the kinds of its arguments; and what differs between
two calls of it."""

from __future__ import annotations

import reprlib
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from boundby.capture.jax import compat
from boundby.capture.jax.hooks import Call, Function
from boundby.model.jax_facts import JaxChange

# Earlier calls that a new one is compared with, and differences that are kept.
_MOST_KEPT = 16
_MOST_CHANGES = 4  # display limit
_MOST_LETTERS = 60  # display limit

_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = _MOST_LETTERS


class _Leaf(NamedTuple):
    """An array or number among the arguments; of anything else, and of what is static, its value.

    `number`: the value of a number of Python's, which matters only where it is static."""

    shape: tuple[int, ...] | None
    dtype: str
    is_weak: bool
    devices: str
    value: str
    number: str

    def __str__(self) -> str:
        if self.shape is None:
            return self.value
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class Explanation(NamedTuple):
    """Why a function was compiled again: it is another object, or its arguments are of other kinds
    than in the call before that is most alike."""

    is_new: bool = False
    changes: tuple[JaxChange, ...] = ()


class _Compiled(NamedTuple):
    compiled: Any
    leaves: dict[str, _Leaf]


class Signatures:
    """The calls for which functions were compiled; asked when one is compiled again."""

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._seen: dict[Function, deque[_Compiled]] = {}

    def explain(self, call: Call) -> Explanation | None:
        """Why a call was compiled; None for the first of its function."""
        now = _Compiled(call.compiled, self._leaves(call))
        before = self._seen.setdefault(call.function, deque(maxlen=_MOST_KEPT))
        if not before:
            before.append(now)
            return None
        of_it = [one.leaves for one in before if one.compiled is now.compiled]
        is_new = not of_it
        differing = (
            _differences(leaves, now.leaves)
            for leaves in reversed(of_it or [one.leaves for one in before])
        )
        changes = min(differing, key=len)
        before.append(now)
        return Explanation(is_new, tuple(changes[:_MOST_CHANGES]))

    def _leaves(self, call: Call) -> dict[str, _Leaf]:
        function = call.function
        names = function.arguments
        found: dict[str, _Leaf] = {}
        given: list[tuple[int | str, Any]] = [*enumerate(call.args), *call.kwargs.items()]
        for position, value in given:
            is_named = isinstance(position, int) and position < len(names)
            name = names[int(position)] if is_named else str(position)
            if function.is_static(position, name):
                found[name] = _static(value)
                continue
            paths, structure = self._jax.tree_util.tree_flatten_with_path(value)
            for path, leaf in paths:
                found[name + self._jax.tree_util.keystr(path)] = _leaf(self._jax, leaf)
            if not (len(paths) == 1 and not paths[0][0]):
                found[f"structure of {name}"] = _static(hash(structure))
        return found


def _leaf(jax: Any, value: Any) -> _Leaf:
    kind = compat.kind_of(jax, value)
    if kind is None:
        return _static(value)
    number = repr(value) if isinstance(value, bool | int | float | complex) else ""
    return _Leaf(kind.shape, kind.dtype, kind.is_weak, kind.devices, "", number)


def _static(value: Any) -> _Leaf:
    return _Leaf(None, "", False, "", _SHORT.repr(value), "")


def _differences(before: dict[str, _Leaf], after: dict[str, _Leaf]) -> list[JaxChange]:
    """The differences by argument; Python numbers are compared only if nothing else differs."""
    names = [name for name in after if not name.startswith("structure of ")]
    names += [name for name in before if name not in after and not name.startswith("structure")]
    found = [
        change for name in names for change in _compared(name, before.get(name), after.get(name))
    ]
    if found:
        return found
    structures = [name for name in after if before.get(name) != after[name] and name not in names]
    if structures:
        return [
            JaxChange(argument=name.removeprefix("structure of "), what="structure")
            for name in structures
        ]
    return [
        JaxChange(argument=name, what="value", before=before[name].number, after=leaf.number)
        for name, leaf in after.items()
        if name in before and before[name].number != leaf.number
    ]


def _compared(name: str, before: _Leaf | None, after: _Leaf | None) -> Iterable[JaxChange]:
    if before is None or after is None:
        was, now = (str(one) if one is not None else "" for one in (before, after))
        yield JaxChange(argument=name, what="structure", before=was, after=now)
    elif before.shape is None or after.shape is None:
        if before[:-1] != after[:-1]:
            yield JaxChange(argument=name, what="value", before=str(before), after=str(after))
    elif before.shape != after.shape:
        yield JaxChange(argument=name, what="shape", before=str(before), after=str(after))
    elif before.dtype != after.dtype:
        yield JaxChange(argument=name, what="dtype", before=str(before), after=str(after))
    elif before.is_weak != after.is_weak:
        was, now = (_with_weak(one) for one in (before, after))
        yield JaxChange(argument=name, what="dtype", before=was, after=now)
    elif before.devices != after.devices:
        yield JaxChange(argument=name, what="sharding", before=before.devices, after=after.devices)


def _with_weak(leaf: _Leaf) -> str:
    return f"a Python number ({leaf})" if leaf.is_weak else f"an array ({leaf})"
