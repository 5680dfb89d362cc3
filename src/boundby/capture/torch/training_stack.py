"""Where the optimizers of a script are made, and which training framework steps them.

Loaded before the script: nothing heavy is imported.
"""

from __future__ import annotations

import sys
from types import FrameType

from boundby.capture.process.run_hooks import calling_line

# Packages that run the training of a script, in the order in which one uses another.
_TRAINERS = (
    "sentence_transformers",
    "transformers",
    "lightning",
    "pytorch_lightning",
    "accelerate",
)
_MOST_LINES = 4  # display limit


class TrainingStack:
    """Reads the Python stack when an optimizer is made, and once when one steps."""

    def __init__(self) -> None:
        self.made_at: list[str] = []
        self.trainer: str | None = None
        self._has_stepped = False

    def optimizer_made(self) -> None:
        line = calling_line()
        if line is not None and line not in self.made_at and len(self.made_at) < _MOST_LINES:
            self.made_at.append(line)

    def optimizer_steps(self) -> None:
        if self._has_stepped:
            return
        self._has_stepped = True
        packages = set()
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            packages.add(str(frame.f_globals.get("__name__", "")).partition(".")[0])
            frame = frame.f_back
        self.trainer = next((name for name in _TRAINERS if name in packages), None)
