"""Telling a person who waits how far things are; nothing, unless something offers to show it.

Measuring takes seconds wherever it is asked for. Who asks from Python gets a bar at a terminal, as
on the command line: `boundby.report.display` brings it. Whoever runs code of ours in a process of
its own, or imports a part alone, gets silence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

# What is being done, and how much of it is done: 0 to 1.
Progress = Callable[[str, float], None]
Shown = Callable[[str], AbstractContextManager[Progress]]

# The newest counts.
progress_listeners: list[Shown] = []


def shown(what: str) -> AbstractContextManager[Progress]:
    """While `what` is done, what to tell of it."""
    return progress_listeners[-1](what) if progress_listeners else _unseen(what)


@contextlib.contextmanager
def _unseen(_: str) -> Iterator[Progress]:
    yield lambda *_: None
