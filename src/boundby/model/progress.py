"""Progress of anything that takes seconds; silent unless a display is registered.

`boundby.report.display` registers the progress bar. A process that imports only a part of boundby
shows nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

# Called with the current stage and the completed share, 0 to 1.
Progress = Callable[[str, float], None]
ProgressDisplay = Callable[[str], AbstractContextManager[Progress]]

# The last one registered is used.
progress_displays: list[ProgressDisplay] = []


def show_progress(what: str) -> AbstractContextManager[Progress]:
    """Open a progress display for `what`; return the function that updates it."""
    return progress_displays[-1](what) if progress_displays else _silent(what)


@contextlib.contextmanager
def _silent(_: str) -> Iterator[Progress]:
    yield lambda *_: None
