"""The batches of a serving engine, by kind: prefill, decode, or mixed.

An engine marks each batch with a range that counts its requests: those whose prompts it reads
(context) and those for which it generates one token each, as in
`execute_context_1(888_788544)_generation_0(0)` (vLLM).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from boundby.capture.kineto.origins import named
from boundby.capture.kineto.rows import Columns, Window
from boundby.model import HostKind

_BATCH = re.compile(
    r"^execute_(?:\d+_)?context_(?P<context>\d+)\(.*_generation_(?P<generation>\d+)"
)


def kind_of_batch(name: str) -> str | None:
    """The kind of the batch with this mark; None if the name is not such a mark."""
    found = _BATCH.match(name)
    if found is None:
        return None
    prefills, decodes = int(found["context"]) > 0, int(found["generation"]) > 0
    return "mixed" if prefills and decodes else "prefill" if prefills else "decode"


def batches(columns: Columns) -> list[tuple[str | None, Window]]:
    """The marked batches in order of time, each from its mark to the next: sampling and the next
    batch's preparation follow the mark's end."""
    host = columns.host
    marks = named(host, columns.names, lambda name: kind_of_batch(name) is not None)
    rows = np.flatnonzero(marks & (host.kind == HostKind.ANNOTATION))
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    kinds = [kind_of_batch(columns.names[name]) for name in host.name[rows].tolist()]
    end_ns = int(host.end.max()) if len(rows) else 0
    return numbered(kinds, host.start[rows].tolist(), end_ns)


def numbered(
    kinds: Sequence[str | None], starts: Sequence[int], end_ns: int
) -> list[tuple[str | None, Window]]:
    """Windows from each start to the next, labelled with their kind and their number in it."""
    numbers: Counter[str] = Counter()
    found: list[tuple[str | None, Window]] = []
    for kind, start, end in zip(kinds, starts, [*starts[1:], end_ns], strict=False):
        if kind is not None and end > start:
            found.append((f"{kind}#{numbers[kind]}", Window(start, end)))
            numbers[kind] += 1
    return found
