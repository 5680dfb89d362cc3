"""The consoles and the progress bar that commands share; rich honours NO_COLOR and plain pipes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from boundby.report.progress import Bar

__all__ = ["error_console", "output_console", "progress_bar"]

_PIPE_WIDTH = 100  # columns if the output is not a terminal


def output_console() -> Console:
    return _console(stderr=False)


def error_console() -> Console:
    return _console(stderr=True)


def progress_bar(what: str, *, shown: bool = True) -> contextlib.AbstractContextManager[Bar]:
    """The bar at a terminal; elsewhere only the lines that are printed."""
    from boundby.report.progress import progress_bar as bar

    return bar(what, shown=shown)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    # Without a terminal rich assumes 80 columns and folds tables that would fit into a log.
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)
    )
