"""Padding: rows of whole numbers that end or begin with one repeated value, and rows of vectors
that end or begin with zeros."""

from __future__ import annotations

from typing import Any

# The smallest share of padding in a batch of this many numbers that is reported.
_LEAST = 0.1
_FEWEST = 64  # elements; assumed: padding of smaller tensors costs nothing
# Numbers that are often zero, as counts of words, are no padding where rows end with some.
_MOST_BLANKS = 0.02
_MOST_NUMBERS = 16 << 20  # time limit


def lengths_of(torch: Any, batch: Any) -> tuple[int, list[int]] | None:
    """The length of the rows with their padding, and of each without; None if nothing is padded."""
    if not isinstance(batch, torch.Tensor) or batch.layout != torch.strided:
        return None
    if not _FEWEST <= batch.numel() <= _MOST_NUMBERS:
        return None
    with torch.no_grad():
        rows = batch.detach()
        if rows.dtype in (torch.int64, torch.int32) and rows.dim() == 2:
            found = _of_numbers(torch, rows.cpu())
            return found or _of_numbers(torch, rows.cpu().flip(1))
        if not rows.is_floating_point() or rows.dim() not in (2, 3):
            return None
        blank = (rows == 0).cpu()
        # Vectors of each position, or channels of each.
        blanks = [blank] if rows.dim() == 2 else [blank.all(2), blank.all(1)]
        found_blanks = (_of_blanks(one) for by in blanks for one in (by, by.flip(1)))
        return next((one for one in found_blanks if one is not None), None)


def _of_numbers(torch: Any, rows: Any) -> tuple[int, list[int]] | None:
    last, width = rows[:, -1:], int(rows.shape[1])
    differs = (rows != last).flip(1)
    run = torch.where(differs.any(1), differs.int().argmax(1), width)
    padded = run > 1
    values = rows[padded][:, -1]
    if not len(values) or not bool((values == values[0]).all()):
        return None
    # A row that ends with the value once may be a text that does, or one padded by one.
    one = (run == 1) & (rows[:, -1] == values[0])
    left = width - torch.where(padded | one, run, 0)
    if not bool((padded & (left > 0)).any()):
        # Rows of one value each are a mask of equal lengths, or texts that are left out, as for
        # guidance.
        return None
    return _lengths(left, width)


def _of_blanks(blank: Any) -> tuple[int, list[int]] | None:
    """The lengths of rows that end with blank positions and have few others."""
    width = int(blank.shape[1])
    run = blank.flip(1).int().cumprod(1).sum(1)
    left = width - run
    others = int(blank.sum()) - int(run.sum())
    if not bool(left.any()) or others > _MOST_BLANKS * int(left.sum()):
        return None
    # Rows that all end alike have features that are not in use.
    return _lengths(left, width) if bool((left != left[0]).any()) else None


def _lengths(left: Any, width: int) -> tuple[int, list[int]] | None:
    share = 1 - float(left.sum()) / (width * len(left))
    return (width, [int(length) for length in left]) if share >= _LEAST else None
