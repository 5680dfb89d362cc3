"""Suppresses torch's own messages on the script's stderr."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def muted_stderr() -> Iterator[None]:
    """Discard what is written to stderr in this block, also by C++."""
    with contextlib.ExitStack() as restored:
        # Without a stderr, or with no file descriptor left, nothing is suppressed.
        with contextlib.suppress(OSError):
            kept = os.dup(2)
            restored.callback(os.close, kept)
            no_intervals = os.open(os.devnull, os.O_WRONLY)
            restored.callback(os.close, no_intervals)
            os.dup2(no_intervals, 2)
            restored.callback(os.dup2, kept, 2)
        yield
