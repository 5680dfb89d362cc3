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

    def of(self, item: object) -> int:
        known = self._known.get(id(item))
        if known is not None and (known[0] is None or known[0]() is item):
            return known[1]
        number = next(self._numbers)
        try:
            # Called during garbage collection, so it only records the number.
            reference = weakref.ref(item, lambda _: self.gone.append(number))
        except TypeError:
            self._known[id(item)] = (None, number)
        else:
            self._known[id(item)] = (reference, number)
        return number
