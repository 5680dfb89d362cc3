"""The lines that bound a tensor of whole numbers, also in the function that made it."""

from __future__ import annotations

import weakref
from typing import Any


class BoundLines:
    """Records which lines bound a tensor, by its memory: a part of a tensor counts as the
    tensor."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._of_memory: dict[int, tuple[weakref.ref[Any], list[str]]] = {}

    def bind(self, tensor: Any, line: str) -> None:
        memory = self._memory_of(tensor)
        if memory is None:
            return
        known = self._of_memory.get(memory)
        # Once the first tensor is gone, another one may have its memory.
        if known is None or known[0]() is None:
            self._of_memory[memory] = weakref.ref(tensor), [line]
        elif line not in known[1]:
            known[1].append(line)

    def of(self, tensor: Any) -> list[str]:
        """The lines that bound the tensor, the latest first."""
        memory = self._memory_of(tensor)
        known = self._of_memory.get(memory) if memory is not None else None
        return known[1][::-1] if known is not None else []

    def _memory_of(self, tensor: Any) -> int | None:
        if type(tensor) is not self._torch.Tensor or tensor.layout != self._torch.strided:
            return None
        if tensor.is_floating_point() or tensor.is_complex() or tensor.device.type == "meta":
            return None
        return int(tensor.untyped_storage().data_ptr()) or None
