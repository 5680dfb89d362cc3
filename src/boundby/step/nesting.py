"""Which rows lie inside which."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model import Ints

Mask = npt.NDArray[np.bool_]


def nearest(parent: npt.NDArray[np.int32], wanted: Mask) -> Ints:
    """For each row itself or its innermost ancestor that is wanted; -1 for none."""
    row = np.arange(len(parent), dtype=np.int64)
    while True:
        looking = (row >= 0) & ~wanted[row]
        if not looking.any():
            return row
        row[looking] = parent[row[looking]]
