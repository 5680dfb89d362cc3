"""The instruments of the measurement windows, as interfaces: device clock, profiler, observers.

Loaded before the script: nothing heavy is imported. Tests pass their own instruments.
"""

from __future__ import annotations

from typing import Any, Protocol


class Device(Protocol):
    """The device's clock: marks in its stream of work, and waiting for it."""

    def mark(self) -> Any: ...

    def between(self, marks: list[Any]) -> list[float]:
        """Times between consecutive marks in ns."""
        ...

    def sync(self) -> None: ...


class Profiler(Protocol):
    def start(self) -> bool:
        """Start the profiler; False if it cannot start."""
        ...

    def step(self) -> None: ...

    def mark(self, phase: str) -> None:
        """Mark the beginning of a phase in the profile."""
        ...

    def is_full(self, late_ns: float, steps: int) -> bool:
        """Whether another step would make the profile too large; `late_ns` is how much longer the
        profiled steps took than clean ones."""
        ...

    def stop(self) -> None: ...


class Observer(Protocol):
    """Observes clean steps."""

    def begin(self) -> None: ...

    def step(self) -> None: ...

    def end(self) -> None: ...


class EvidenceObserver(Observer, Protocol):
    """Observes values in a few untimed steps."""

    @property
    def wants_more(self) -> bool:
        """Whether something it has seen continues into the next step."""
        ...
