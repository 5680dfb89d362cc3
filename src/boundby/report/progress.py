"""A progress bar on stderr; it disappears at the end."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from boundby.model.units import printable

_PIPE_WIDTH = 100  # columns if the output is not a terminal
# Without a terminal: work that takes longer than this reports its stage, and then this seldom.
_PATIENCE_S, _BETWEEN_S = 2.0, 5.0


class Bar:
    """Shows the current stage and its progress; `print` leaves a permanent line.

    In a notebook it is one line, if the work takes that long: rich would need widgets there, and
    warn without them.
    """

    def __init__(self, what: str, progress: Progress, *, shown: bool, notebook: bool) -> None:
        self._what = what
        self._progress = progress
        self._shown = shown
        self._task = progress.add_task(what, total=1.0)
        self._began = time.monotonic()
        self._announced = not shown or not notebook
        # Without a terminal a bar cannot be drawn: now and then the stage is printed as a line.
        self._plain = shown and not notebook and not progress.console.is_terminal
        self._stage = ""
        self._next_line = self._began + _PATIENCE_S

    def __call__(self, stage: str, part: float) -> None:
        stage = printable(stage)
        if not self._announced:
            self._announced = True
            sys.stderr.write(f"boundby: {self._what} ... this takes some seconds\n")
        now = time.monotonic()
        if self._plain and stage != self._stage and now > self._next_line:
            self._stage, self._next_line = stage, now + _BETWEEN_S
            passed = now - self._began
            sys.stderr.write(f"boundby: {self._what} {stage} ({part:.0%}, {passed:.0f} s)\n")
        self._progress.update(self._task, description=f"{self._what} {stage}", completed=part)

    def print(self, line: str) -> None:
        """Print above the bar; without a terminal, a plain line for the log, at once."""
        if self._shown:
            passed = f"{time.monotonic() - self._began:5.0f} s  "
            self._progress.console.print(Text.assemble((passed, "dim"), line))


@contextlib.contextmanager
def progress_bar(what: str, *, shown: bool = True) -> Iterator[Bar]:
    """The bar at a terminal; elsewhere only the lines that are printed."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=True, highlight=False, width=_PIPE_WIDTH)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    notebook = "ipykernel" in sys.modules
    disabled = not shown or notebook or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disabled) as progress:
        yield Bar(what, progress, shown=shown, notebook=notebook)
