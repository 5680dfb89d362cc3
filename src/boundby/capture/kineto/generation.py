"""The forward passes of a loop that generates tokens: a prefill, then one decode per token.

Without marks a pass begins where its tokens are looked up in the model's largest embedding table.
"""

from __future__ import annotations

import msgspec
import numpy as np

from boundby.capture.kineto.arguments import CallKey
from boundby.capture.kineto.batches import numbered
from boundby.capture.kineto.events import OPTIMIZER_STEP
from boundby.capture.kineto.origins import ENGINE, named
from boundby.capture.kineto.rows import Columns, Window

_EMBEDDING = "aten::embedding"
_FEWEST_DECODES = 2  # one pass over a single token may be a short prompt


def passes(columns: Columns, end_ns: int) -> list[tuple[str | None, Window]]:
    """The passes in order of time, each to the beginning of the next; none if it trains, or if
    there are no passes of one token per sequence."""
    host = columns.host
    looked_up = [_looked_up(key) for key in columns.calls]
    largest = max((rows for rows, _ in filter(None, looked_up)), default=0)
    if not largest:
        return []
    tokens = [found[1] if found and found[0] == largest else 0 for found in looked_up]
    of_row = np.array([*tokens, 0])[host.call]
    if np.count_nonzero(of_row == 1) < _FEWEST_DECODES:
        return []
    if named(host, columns.names, lambda name: name.startswith((ENGINE, OPTIMIZER_STEP))).any():
        return []
    rows = np.flatnonzero(of_row)
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    kinds = ["decode" if one == 1 else "prefill" for one in of_row[rows].tolist()]
    return numbered(kinds, host.start[rows].tolist(), end_ns)


def _looked_up(key: CallKey) -> tuple[int, int] | None:
    """The rows of the table, and the tokens per sequence, of a call that looks up tokens."""
    name, shapes, *_ = key
    if name != _EMBEDDING:
        return None
    try:
        (rows, _), (*_, tokens) = msgspec.json.decode(shapes, type=list[list[int]])[:2]
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
    return (rows, tokens) if rows > 0 and tokens > 0 else None
