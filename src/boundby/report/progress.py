"""A bar on stderr for a person who waits; it goes away when done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from boundby import waiting


@contextlib.contextmanager
def progress_bar(what: str, *, shown: bool = True) -> Iterator[waiting.Progress]:
    """The bar at a terminal; a line in a notebook, if it takes that long; else nothing."""
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    # In a notebook rich would want widgets, and complain where there are none.
    notebook = "ipykernel" in sys.modules
    disabled = not shown or notebook or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disabled) as bar:
        task = bar.add_task(what, total=1.0)
        told = not shown or not notebook

        def advance(stage: str, part: float) -> None:
            nonlocal told
            if not told:
                told = True
                sys.stderr.write(f"boundby: {what} ... this takes some seconds\n")
            bar.update(task, description=f"{what} {stage}", completed=part)

        yield advance
