"""How long the host takes for each phase of a step, begun from an idle device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

# Until a step's first phase is named: data is fetched, or a forward without modules runs.
_START = "start"


class Phases:
    """The phases of one step at a time."""

    def __init__(self, sync: Callable[[], None], clock: Callable[[], int]) -> None:
        self._sync = sync
        self._clock = clock
        self._times: dict[str, float] = defaultdict(float)
        self._phase = _START
        self._since = 0

    def begin(self) -> None:
        self._times = defaultdict(float)
        self._enter(_START)

    def change(self, phase: str) -> None:
        if phase != self._phase:
            self._leave(phase)
            self._enter(phase)

    def end(self) -> dict[str, float]:
        """What the step took, by phase."""
        self._leave(None)
        return dict(self._times)

    def _leave(self, following: str | None) -> None:
        phase = self._phase
        if phase == _START:
            phase = "other" if following == "forward" else "forward"
        self._times[phase] += self._clock() - self._since

    def _enter(self, phase: str) -> None:
        self._sync()
        self._phase = phase
        self._since = self._clock()
