"""Keeping what torch says of itself off the script's stderr."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What is written to stderr meanwhile, also by C++, goes nowhere."""
    with contextlib.ExitStack() as restored:
        # Without a stderr, or with no descriptor left, it is heard.
        with contextlib.suppress(OSError):
            kept = os.dup(2)
            restored.callback(os.close, kept)
            no_intervals = os.open(os.devnull, os.O_WRONLY)
            restored.callback(os.close, no_intervals)
            os.dup2(no_intervals, 2)
            restored.callback(os.dup2, kept, 2)
        yield
