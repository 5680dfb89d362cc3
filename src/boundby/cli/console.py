"""The consoles and the progress bar that verbs share; rich honours NO_COLOR and plain pipes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

_PIPE_WIDTH = 100


def output_console() -> Console:
    return _console(stderr=False)


def error_console() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    # Without a terminal rich assumes 80 columns and folds tables that a log has room for.
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)
    )


class Bar:
    """Says what is being done, and how far it is; `print` leaves a line that stays."""

    def __init__(self, what: str, progress: Progress, *, shown: bool) -> None:
        self._what = what
        self._progress = progress
        self._shown = shown
        self._task = progress.add_task(what, total=1.0)
        self._began = time.monotonic()

    def __call__(self, stage: str, part: float) -> None:
        self._progress.update(self._task, description=f"{self._what} {stage}", completed=part)

    def print(self, line: str) -> None:
        """Above the bar; where there is no terminal, a plain line for the log, at once."""
        if self._shown:
            passed = f"{time.monotonic() - self._began:5.0f} s  "
            self._progress.console.print(Text.assemble((passed, "dim"), line))


@contextlib.contextmanager
def progress_bar(what: str, *, shown: bool = True) -> Iterator[Bar]:
    """A bar on stderr that goes away when done; where stderr is no terminal, only its lines."""
    console = error_console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    disabled = not shown or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disabled) as bar:
        yield Bar(what, bar, shown=shown)
