"""Index tensors like those of a step: spread over a table, not all the same.

Other integers are zero, which is always valid. With zeros as indices, one row of a table would
always be read from a cache, and all gradients would be added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boundby.model import Tensor

# The argument with the table, or with its number of rows.
_ROWS_AT = {"aten::embedding": 0, "aten::embedding_dense_backward": 2}
_BAGS = ("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
_BAGS_BACKWARD = "aten::_embedding_bag_dense_backward"


def value_limit(name: str, args: Sequence[Any]) -> int:
    """How many values the operator's integers may have; one if unknown."""
    place = _ROWS_AT.get(name)
    if place is None or place >= len(args):
        return 1
    rows_argument = args[place]
    rows = (
        rows_argument.shape[0]
        if isinstance(rows_argument, Tensor) and rows_argument.shape
        else rows_argument
    )
    return rows if isinstance(rows, int) and rows > 0 else 1


def fill_bags(torch: Any, name: str, args: Sequence[Any]) -> None:
    """Bags of equal size, with rows from all of the table."""
    if name in _BAGS:
        table, indices, offsets = args[:3]
        indices.random_(0, table.shape[0])
        offsets.copy_(_evenly(torch, offsets, len(indices)))
    elif name == _BAGS_BACKWARD:
        gradient, indices, bag_of, sizes = args[:4]
        indices.random_(0, args[5])
        bag_of.copy_(_evenly(torch, bag_of, len(gradient)))
        sizes.fill_(len(indices) // len(gradient))


def _evenly(torch: Any, like: Any, reach: int) -> Any:
    return torch.arange(len(like), device=like.device) * reach // len(like)
