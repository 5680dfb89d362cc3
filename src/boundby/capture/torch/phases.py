"""How long the host takes for each phase of a step."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

# Until a step's first phase is marked: data is fetched, or a forward without modules runs.
_START = "start"


class Phases:
    """The phases of one step at a time; `sync` is called before each, so that it begins with an
    idle device."""

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
        """The time of the step, by phase."""
        self._leave(None)
        return dict(self._times)

    def turn(self, now: int) -> dict[str, float]:
        """`end` and `begin` at this time by the clock, without the wait that `sync` may be."""
        if self._phase == _START:
            times = {"forward": float(now - self._since)}
        else:
            self._times[self._phase] += now - self._since
            times, self._times = dict(self._times), defaultdict(float)
            self._phase = _START
        self._since = now
        return times

    def _leave(self, following: str | None) -> None:
        phase = self._phase
        if phase == _START:
            phase = "other" if following == "forward" else "forward"
        self._times[phase] += self._clock() - self._since

    def _enter(self, phase: str) -> None:
        self._sync()
        self._phase = phase
        self._since = self._clock()


def usual_phases(
    issue: Sequence[dict[str, float]], steady: Sequence[dict[str, float]]
) -> dict[str, float]:
    """The usual host time of each phase.

    With an idle device the host does not wait, but there are few such steps, and all of them may be
    disturbed. In a clean step it may wait for the device, so its time is at least its own: the
    smaller of the two is used.
    """
    found = {}
    for name in {name: None for step in issue for name in step}:
        found[name] = _middle(issue, name)
        if any(name in step for step in steady):
            found[name] = min(found[name], _middle(steady, name))
    return found


def _middle(steps: Sequence[dict[str, float]], phase: str) -> float:
    return statistics.median(step.get(phase, 0.0) for step in steps)
