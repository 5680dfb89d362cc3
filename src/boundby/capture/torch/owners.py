"""Which modules the optimizers of a script update: the others do not define its steps.

A frozen encoder, a teacher or a transform with weights runs beside the model. No optimizer holds a
parameter of it, which distinguishes it from the model.
"""

from __future__ import annotations

import weakref
from typing import Any

from boundby.runtime.modules import parameters_of


class Owners:
    """The optimizers that were made, and the modules whose parameters they hold."""

    def __init__(self, module_class: type) -> None:
        self._module_class = module_class
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._owns_any = False

    def made(self, optimizer: object) -> None:
        """Called while an optimizer is made, before it has its parameters."""
        self._optimizers.add(optimizer)
        self._known.clear()

    def own(self, called: object) -> bool:
        """Whether an optimizer updates this module, as far as known.

        True for all modules until one is known that an optimizer updates: some optimizers hold
        copies of the parameters.
        """
        if not self._optimizers or not isinstance(called, self._module_class):
            return True
        known = self._known.get(called)
        if known is None:
            known = self._known[called] = self._hold_one_of(called)
            self._owns_any |= known
        return known or not self._owns_any

    def _hold_one_of(self, module: Any) -> bool:
        held = {
            id(parameter)
            for optimizer in self._optimizers
            for group in getattr(optimizer, "param_groups", ())
            for parameter in group["params"]
        }
        return any(id(parameter) in held for parameter in parameters_of(module))
