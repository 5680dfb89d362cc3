"""Unique numbers for objects: an address may be used again, these numbers are not."""

from __future__ import annotations

import itertools
import weakref


class ObjectIds:
    """Each object's number. No object is kept alive; `gone` has the numbers of deleted ones."""

    def __init__(self) -> None:
        self.gone: list[int] = []
        self._numbers = itertools.count()
        self._known: dict[int, tuple[weakref.ref[object] | None, int]] = {}

    def of(self, thing: object) -> int:
        known = self._known.get(id(thing))
        if known is not None and (known[0] is None or known[0]() is thing):
            return known[1]
        number = next(self._numbers)
        try:
            # Called during garbage collection, so it only records the number.
            reference = weakref.ref(thing, lambda _: self.gone.append(number))
        except TypeError:
            self._known[id(thing)] = (None, number)
        else:
            self._known[id(thing)] = (reference, number)
        return number
