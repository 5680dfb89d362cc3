"""Tensors that continue those of the step before: the same values as far as both reach.

A table of positions or a mask that is made for the length of each batch is a part of the one for
the longest: it could be made once, like one of fixed size.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from boundby.capture.torch.evidence.values import fingerprint

_MOST_BYTES = 4 << 20  # memory limit: larger tensors are compared by their fingerprints alone
_FEWEST = 16  # values in common


class ContinuedPrints:
    """Fingerprints in which a tensor that continues the last one of its key equals it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._last: dict[Hashable, tuple[Any, Any]] = {}  # the print, and a copy of the values

    def of(self, key: Hashable, value: Any) -> Any:
        found = fingerprint(self._torch, value)
        if found is None or not isinstance(value, self._torch.Tensor) or value.dim() == 0:
            return found
        if value.numel() * value.element_size() > _MOST_BYTES:
            return found
        plain = value.detach()
        known, before = self._last.get(key, (None, None))
        if known is not None and known != found and self._continue(before, plain):
            found = known
        longer = before is None or known != found or plain.numel() > before.numel()
        if longer:
            self._last[key] = found, plain.clone()
        return found

    def _continue(self, one: Any, other: Any) -> bool:
        """Whether two tensors of different sizes have the same values where both have some."""
        if one.dim() != other.dim() or one.dtype != other.dtype or one.shape == other.shape:
            return False
        if one.device != other.device:
            return False
        common = tuple(slice(min(sizes)) for sizes in zip(one.shape, other.shape, strict=True))
        with self._torch.no_grad():
            part = one[common]
            return part.numel() >= _FEWEST and bool(self._torch.equal(part, other[common]))
