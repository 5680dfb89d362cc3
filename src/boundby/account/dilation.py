"""What the profiler cost in a profiled step on a CPU, where it only adds to what runs.

It costs time for each event, an operator's most, and Python 3.11 also runs all of its instructions
slower under a profiler, calls or not (a loop that makes none took 1.5 times as long). What it takes
for Python was measured in the process itself; operators cost the rest of what the step is longer
than a clean one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.account.nesting import Mask
from boundby.account.whereabouts import Whereabouts
from boundby.model import HostKind, Timeline

Floats = npt.NDArray[np.float64]

# What events cost beside an operator's, where the process was not asked: with all that is recorded
# in a live run, torch 2.13 and Python 3.11 took 1.05 us for an operator, 0.3 to 0.5 for a function,
# 0.17 to 0.19 for one in C.
_FUNCTION, _FUNCTION_IN_C = 0.4, 0.2
_BUILTIN = re.compile(r"^<(?:built-in|method|slot)")


class Dilation(NamedTuple):
    """What is to be taken off: for each event, in the order of host rows, and of the time in
    Python's own code."""

    event_ns: Floats
    of_python: float = 0.0


def dilation_of(timeline: Timeline, where: Whereabouts, *, wall_ns: float) -> Dilation:
    """The costs that explain, together, all by which the step is longer than a clean one."""
    host, toll = timeline.host, timeline.toll
    longer = max(0.0, timeline.wall_ns - wall_ns)
    interpreted = python_code(timeline)
    is_call = np.isin(host.kind, (HostKind.PYTHON, HostKind.DATA))
    if toll is None:
        weights = np.where(is_call, np.where(interpreted, _FUNCTION, _FUNCTION_IN_C), 1.0)
        return Dilation(weights * longer / max(1.0, float(weights.sum())))
    calls = np.where(is_call, np.where(interpreted, toll.function_ns, toll.builtin_ns), 0.0)
    lengths = (where.end_ns - where.start_ns).astype(np.float64)
    python = float(lengths[np.append(interpreted, False)[where.row]].sum())
    # Around a call the profiler's own time is seen as the calling function's.
    slowed = toll.of_python * max(0.0, python - float(calls.sum()))
    known = float(calls.sum()) + slowed
    if known >= longer or is_call.all():
        part = longer / known if known else 0.0
        return Dilation(calls * part, part * slowed / python if python else 0.0)
    operators = np.where(is_call, 0.0, (longer - known) / int(np.count_nonzero(~is_call)))
    return Dilation(calls + operators, slowed / python if python else 0.0)


def python_code(timeline: Timeline) -> Mask:
    """Rows in which the interpreter itself runs: Python functions, not those in C."""
    host = timeline.host
    in_c = np.array([bool(_BUILTIN.search(name)) for name in timeline.names] or [False])
    found: Mask = np.isin(host.kind, (HostKind.PYTHON, HostKind.DATA)) & ~in_c[host.name]
    return found
