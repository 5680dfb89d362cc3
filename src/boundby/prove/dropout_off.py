"""A module without dropout, set by its own attributes, because compiled code has guards on those.

Replacing `torch.nn.functional.dropout` does not work: torch.compile treats torch's own functions as
constants, and code compiled without dropout would be reused by the program afterwards. Dropout that
no attribute controls stays on; then results are compared as random draws.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def dropout_off(torch: Any, module: Any) -> Iterator[None]:
    undo: list[tuple[Any, str, Any]] = []
    dropout = torch.nn.modules.dropout._DropoutNd
    for part in module.modules():
        if isinstance(part, dropout):
            undo.append((part, "training", part.training))
            part.training = False
            continue
        for name, value in list(vars(part).items()):
            if isinstance(value, float) and 0.0 < value < 1.0 and _is_probability(name):
                undo.append((part, name, value))
                setattr(part, name, 0.0)
    try:
        yield
    finally:
        for part, name, value in reversed(undo):
            setattr(part, name, value)


def _is_probability(name: str) -> bool:
    """A dropout probability by its name: `dropout`, `attention_dropout`, `drop_prob`, `drop_path`;
    not a keep probability."""
    return "drop" in name and "keep" not in name
