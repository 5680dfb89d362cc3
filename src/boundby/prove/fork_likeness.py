"""Whether forked processes of a script are what its fresh ones are: in numbers and in time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from boundby.model import units
from boundby.prove import numerics, speedup
from boundby.prove.trial_result import TrialResult

# Beyond the interval of what processes differ by anyway. One that is taken for another costs a
# user nothing but time: all is run in fresh processes then.
_BEYOND = 1.10


def unlike(fresh: TrialResult, forked: Sequence[TrialResult]) -> str | None:
    """Why forked baselines do not stand for fresh ones; None where they do."""
    for one in forked:
        if one.problem is not None:
            return f"a fork failed: {one.problem}"
    first = forked[0]
    if first.kind != fresh.kind or not first.samples_ns or not fresh.samples_ns:
        return "a fork shows other steps"
    checked = numerics.find_verdict([fresh.notes], [first.notes], None, None)
    if not checked.ok:
        return f"a fork computes something else: {checked.why}"
    # Those after it are compared with what was run beside them.
    before, after = [fresh.samples_ns], [first.samples_ns]
    ratio = speedup.estimate(before, after, speedup.scatter([before, after]))
    faster = _host_was_faster(fresh, first)
    if ratio.low > _BEYOND * max(1.0, faster) or ratio.high < min(1.0, faster) / _BEYOND:
        times = " instead of ".join(units.time(one.median_ns) for one in (first, fresh))
        return f"steps take {times} in a fork"
    return None


def _host_was_faster(fresh: TrialResult, forked: TrialResult) -> float:
    """In the fork than in the fresh process: up to so much faster are steps that it bounds."""
    if not fresh.pace_ns or not forked.pace_ns:
        return 1.0
    return statistics.median(fresh.pace_ns) / statistics.median(forked.pace_ns)
