"""Which rows lie inside which."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model import Ints

Mask = npt.NDArray[np.bool_]


def nearest(parent: npt.NDArray[np.int32], wanted: Mask) -> Ints:
    """For each row itself or its innermost ancestor that is wanted; -1 for none."""
    # Pointers to the next row to look at: wanted rows and -1 (the last entry too) point to
    # themselves. Each round doubles the distance.
    follow = np.append(np.where(wanted, np.arange(len(parent)), parent), -1).astype(np.int64)
    while True:
        further = follow[follow]
        if np.array_equal(further, follow):
            return follow[:-1]
        follow = further
