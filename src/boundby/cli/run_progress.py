"""Progress messages while a script runs: a line when something changes.

Whole lines, and few: the script may print between them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, TextIO

import click

if TYPE_CHECKING:
    from boundby.capture.process.windows import Window


class RunProgress:
    """Reports when the script's steps were found, when they are profiled and when that has
    ended."""

    def __init__(self, *, shown: bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = shown and self._stream is not None and self._stream.isatty()
        self._said: set[str] = set()

    def opened(self, window: Window, steps: int, kind: str | None) -> None:
        """A window has opened, after this many steps, most of the time in those of this kind."""
        if not self._shown:
            return
        from boundby.capture.process.windows import Window

        so_far = f"{steps} step{'s' * (steps != 1)}"
        if window in (Window.ISSUE, Window.CLEAN):
            self._say_once("found", f"steps found ({kind}); measuring, after {so_far} of warm-up")
        elif window is Window.PROFILED:
            self._say_once("profiling", f"profiling, after {so_far}")
        elif window in (Window.EVIDENCE, Window.DONE):
            done = "measured and profiled" if "profiling" in self._said else "measured"
            self._say_once("ended", f"{done}, after {so_far}")

    def _say_once(self, what: Literal["found", "profiling", "ended"], line: str) -> None:
        """Print a message once: windows open more than once, also if steps are found anew."""
        if what not in self._said:
            self._said.add(what)
            click.echo(f"boundby: {line}", file=self._stream)
