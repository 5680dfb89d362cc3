"""Where the seconds of a trial go: most of them before its first step.

On the clock that all processes of a machine share, from the moment the trial was asked for.
"""

from __future__ import annotations

import time
from typing import Any

from boundby.capture.process.step_hooks import StepHook


class Stages(StepHook):
    """How far the trial came, and when."""

    def __init__(self, began_s: float, compared: int) -> None:
        """`began_s`: when it was asked for; `compared`: how many steps are compared, not timed."""
        self._began_s = began_s
        self._compared = compared
        self._ready_s = self._now()
        self._torch_s: float | None = None
        self._called_s: float | None = None
        self._steps_s: list[float] = []

    def torch_arrived(self) -> None:
        if self._torch_s is None:
            self._torch_s = self._now()

    def call_begins(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._called_s is None:
            self._called_s = self._now()

    def step_ended(self) -> None:
        self._steps_s.append(self._now())

    def spent(self, clean: int) -> dict[str, float]:
        """Seconds by stage, as far as it came; `clean`: how many steps were timed at its end."""
        ends: list[tuple[str, float | None]] = [
            ("start_s", self._ready_s),
            ("torch_s", self._torch_s),
            ("script_s", self._called_s),
        ]
        steps = self._steps_s
        if self._called_s is not None and len(steps) >= self._compared:
            if self._compared:
                ends.append(("compared_s", steps[self._compared - 1]))
            # What was seen first may have been forgotten as another kind of step: from the end.
            if 0 < clean < len(steps):
                ends += [("warmup_s", steps[-1 - clean]), ("clean_s", steps[-1])]
        found: dict[str, float] = {}
        before = 0.0
        for name, end in ends:
            if end is not None:
                found[name] = max(0.0, end - before)
                before = max(before, end)
        return found

    def _now(self) -> float:
        return time.monotonic() - self._began_s
