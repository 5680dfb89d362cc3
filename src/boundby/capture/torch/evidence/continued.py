"""Tensors that continue those of the step before: the same values as far as both reach.

A table of positions or a mask that is made for the length of each batch is a part of the one for
the longest: it could be made once, like one of fixed size. What only grows may be a collection of
results, as a cache of keys and values: it counts only where its line makes a tensor from nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from types import CodeType
from typing import Any

from boundby.capture.torch.evidence.code_names import named_at
from boundby.capture.torch.evidence.values import fingerprint

_MOST_BYTES = 4 << 20  # memory limit: larger tensors are compared by their fingerprints alone
_FEWEST = 16  # values in common
_MADE_BY = frozenset({"arange", "eye", "full", "linspace", "ones", "zeros"})
# Functions that make a tensor of given values.
_HOLDS = _MADE_BY | {"as_tensor", "full_like", "new_full", "new_ones", "new_tensor", "new_zeros"}
_HOLDS |= {"ones_like", "tensor", "zeros_like"}


class ContinuedPrints:
    """Fingerprints by key. A tensor that agrees with the last one of its key as far as both reach
    gets the same fingerprint."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._last: dict[Hashable, tuple[Any, Any]] = {}  # the print, and a copy of the values
        self._only_grew: set[Hashable] = set()
        self._shrank: set[Hashable] = set()

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
            shrank = plain.numel() < before.numel()
            (self._shrank if shrank else self._only_grew).add(key)
        longer = before is None or known != found or plain.numel() > before.numel()
        if longer:
            self._last[key] = found, plain.clone()
        return found

    def only_grew(self, key: Hashable) -> bool:
        """Whether the tensors of this key continue one another, each longer than the last."""
        return key in self._only_grew and key not in self._shrank

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


def makes_tensors(code: CodeType, line: int) -> bool:
    """Whether a line of the code names a function that makes a tensor from nothing."""
    return not _MADE_BY.isdisjoint(named_at(code, line))


def may_coincide(torch: Any, value: Any, names: Iterable[str]) -> bool:
    """Whether equal results of code that loads these names may have different inputs: all of their
    numbers are the same one, as of an accuracy of zero or a mask of valid values, and the code
    gives no values."""
    if not isinstance(value, torch.Tensor) or not value.numel() or not _HOLDS.isdisjoint(names):
        return False
    with torch.no_grad():
        flat = value.detach().reshape(-1)
        return bool((flat == flat[0]).all())
