"""What the profiler cost in a profiled step on a CPU, where it only adds to what runs.

It costs time for each event. Up to Python 3.11 it also slows every instruction of Python, call or
not (a loop that makes no calls took 1.9 times as long). How much is due to which is told by the
clean times of phases: a backward is all events, a loop over a list none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from boundby.account.nesting import Mask
from boundby.account.whereabouts import Whereabouts, main_thread
from boundby.model import HostKind, Phase, Timeline

# Of the time in a Python function's own code, at most this much is taken to be the profiler's.
_MOST_SLOWED = 0.7
_BUILTIN = re.compile(r"^<(?:built-in|method|slot)")
_PHASES = {
    Phase.OTHER: ("forward", "other"),
    Phase.BACKWARD: ("backward",),
    Phase.OPTIMIZER: ("optimizer",),
}


class Dilation(NamedTuple):
    """What is to be taken off: for each event, and of the time in Python's own code."""

    per_event_ns: float
    of_python: float = 0.0


def dilation_of(
    timeline: Timeline,
    where: Whereabouts,
    *,
    wall_ns: float,
    phases: Mapping[str, float] | None,
) -> Dilation:
    """The two costs that explain, together, all by which the step is longer than a clean one.

    Of those the pair that leaves each phase nearest to its clean time; without phases, all of it
    is the events'.
    """
    host = timeline.host
    longer = max(0.0, timeline.wall_ns - wall_ns)
    events = len(host)
    simple = Dilation(longer / max(1, events))
    clean = [sum((phases or {}).get(name, 0.0) for name in names) for names in _PHASES.values()]
    if not events or not longer or sum(value > 0 for value in clean) < 2:
        return simple
    own = where.on(main_thread(timeline))
    lengths = (where.end_ns - where.start_ns)[own].astype(np.float64)
    rows = where.row[own]
    phase = np.append(host.phase, Phase.OTHER)
    phase = np.where(phase == Phase.FORWARD, Phase.OTHER, phase)
    is_python = np.append(python_code(timeline), False)[rows]

    def by_phase(of: np.ndarray, amounts: np.ndarray) -> np.ndarray:
        return np.array([float(amounts[of == one].sum()) for one in _PHASES])

    took = by_phase(phase[rows], lengths)
    counts = by_phase(phase[:-1], np.ones(events))
    python = by_phase(phase[rows], np.where(is_python, lengths, 0.0))
    if not python.sum():
        return simple
    # Phases were timed in other steps than the clean ones: their proportions are what counts.
    should = np.array(clean) * wall_ns / sum(clean)
    # With what events do not explain put down to Python, the cost of an event is what is left.
    slope = counts - events * python / python.sum()
    target = took - should - longer * python / python.sum()
    fitted = float(slope @ target / (slope @ slope)) if slope.any() else simple.per_event_ns
    least = (longer - _MOST_SLOWED * float(python.sum())) / events
    per_event = float(np.clip(fitted, max(0.0, least), simple.per_event_ns))
    return Dilation(per_event, max(0.0, longer - per_event * events) / float(python.sum()))


def python_code(timeline: Timeline) -> Mask:
    """Rows in which the interpreter itself runs: Python functions, not those in C."""
    host = timeline.host
    in_c = np.array([bool(_BUILTIN.search(name)) for name in timeline.names] or [False])
    found: Mask = (host.kind == HostKind.PYTHON) & ~in_c[host.name]
    return found
