"""The consoles and the progress bar that commands share; rich honours NO_COLOR and plain pipes."""

from __future__ import annotations

from rich.console import Console

from boundby.report.progress import progress_bar

__all__ = ["error_console", "output_console", "progress_bar"]

_PIPE_WIDTH = 100  # columns if the output is not a terminal


def output_console() -> Console:
    return _console(stderr=False)


def error_console() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    # Without a terminal rich assumes 80 columns and folds tables that would fit into a log.
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)
    )
