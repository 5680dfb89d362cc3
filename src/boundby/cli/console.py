"""The consoles and the progress bar that verbs share; rich honours NO_COLOR and plain pipes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

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


@contextlib.contextmanager
def progress_bar(what: str, *, shown: bool = True) -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr that goes away when done; silent where stderr is no terminal."""
    console = error_console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    disabled = not shown or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disabled) as bar:
        task = bar.add_task(what, total=1.0)

        def advance(stage: str, part: float) -> None:
            bar.update(task, description=f"{what} {stage}", completed=part)

        yield advance
