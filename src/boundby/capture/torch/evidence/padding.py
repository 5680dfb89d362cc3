"""Padding: rows of whole numbers that end in one repeated value."""

from __future__ import annotations

from typing import Any

# The smallest share of padding in a batch of this many tokens that is reported.
_LEAST = 0.1
_FEWEST = 64  # elements; assumed: padding of smaller tensors costs nothing


def lengths_of(torch: Any, ids: Any) -> list[int] | None:
    """The length of each row without its padding; None if nothing is padded."""
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.numel() < _FEWEST:
        return None
    if ids.dtype not in (torch.int64, torch.int32) or ids.layout != torch.strided:
        return None
    with torch.no_grad():
        rows = ids.detach().cpu()
        last = rows[:, -1:]
        differs = (rows != last).flip(1)
        run = torch.where(differs.any(1), differs.int().argmax(1), rows.shape[1])
        padded = run > 1
        values = rows[padded][:, -1]
        if not len(values) or not bool((values == values[0]).all()):
            return None
        # A row that ends with the value once may be a text that does, or one padded by one.
        one = (run == 1) & (rows[:, -1] == values[0])
        left = rows.shape[1] - torch.where(padded | one, run, 0)
    if not bool(left.any()):
        # Rows of one value each are a mask of equal lengths, not tokens.
        return None
    share = 1 - float(left.sum()) / rows.numel()
    return [int(length) for length in left] if share >= _LEAST else None
