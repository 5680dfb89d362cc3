"""Marks that a live run writes into its profile at the beginning of each phase of a step.

The recorder writes them; the trace reader turns them into `Timeline.phases` and removes them from
the events. Nothing else reads these names.
"""

from __future__ import annotations

_NAMESPACE = "boundby::phase::"
# The range of one profiled step in a profile of XLA.
STEP_MARK = "boundby::step"
# boundby itself waits for the device in this range, so that profiled steps do not overlap.
OWN_WAIT = "boundby::wait"


def phase_mark(phase: str) -> str:
    """The name of the mark at which a phase begins."""
    return _NAMESPACE + phase


def marked_phase(name: str) -> str | None:
    """The phase that begins at a mark of this name; None for any other name."""
    return name.removeprefix(_NAMESPACE) if name.startswith(_NAMESPACE) else None
