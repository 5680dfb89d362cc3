"""How many steps each window takes, and which options suit a script with fewer.

The number of steps of a script is unknown, and clean steps come before the profiler: each
unnecessary one may be the one that the profile would need. So windows are as short as their
measurements allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# The longest that warm-up waits for another kind of step that is known to come: evaluations over a
# data set take tens of seconds on a CPU.
MOST_AWAITED_NS = 60e9
FEWEST_WARMUP = 3  # steps; allocators and algorithm choice settle
_CLEAN = 10  # steps by default
_ISSUE = 6  # steps by default
_PROFILED = 3  # steps by default
_FEWEST_WITH_ISSUE = 3  # steps for a median
# The first profiled step includes the profiler's start, and is one more than wanted.
PROFILER_START = 1
# A median is precise enough within the difference between two processes of one script.
_KNOWN = 0.03
# If a step can be repeated at will, take more.
_STRETCH_AT_LEISURE = 4.0
_ISSUE_AT_LEISURE = 8  # steps: two more than by default

# Names of the numbers of steps: options of a command line, or arguments of `watch`.
Spelling = Literal["options", "arguments"]
# How a script, or a loop, ended.
How = Literal["ended", "failed", "was interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many steps each window takes. `warmup` None: until step time is stable.

    Short clean steps continue until `least_clean_s` have passed, up to `stretch` times as many, or
    until their median is `known` to this precision: ten steps of ten milliseconds are too few on a
    busy host, and enough on a quiet one.

    `in_step` counts steps of any kind and uses no clock: the ranks of a job must end after the same
    step, or the others wait forever.

    `sees_epochs`: if the end of the epoch is near, the run continues until then, to see what comes
    between two of them.

    `kind`: measure only steps whose kind begins with this: "forward", "train 16x96". None: the kind
    with most time.
    """

    warmup: int | None = None
    clean: int = _CLEAN
    issue: int = _ISSUE
    profiled: int = _PROFILED
    least_warmup: int = FEWEST_WARMUP
    most_warmup: int = 30
    most_warmup_s: float = 120.0
    least_clean_s: float = 0.0
    most_clean_s: float = 20.0
    stretch: float = 4.0
    known: float | None = None
    in_step: bool = False
    sees_epochs: bool = False
    kind: str | None = None

    @property
    def total(self) -> int:
        """The number of steps after which all ranks of a job end."""
        profiled = self.profiled + PROFILER_START if self.profiled else 0
        return (self.warmup or self.least_warmup) + self.clean + self.issue + profiled


def plan_of(
    *,
    warmup: int | None,
    steps: int | None,
    profiled: int,
    in_step: bool = False,
    at_leisure: bool = False,
    kind: str | None = None,
) -> Plan:
    """The plan for a user's options; `steps` None derives their number from the steps.

    `at_leisure`: steps can be repeated at will, so more are taken.
    """
    if steps is not None:
        issue = _issue_beside(steps)
        return Plan(
            warmup=warmup,
            clean=steps,
            issue=issue,
            profiled=profiled,
            in_step=in_step,
            kind=kind,
        )
    return Plan(
        warmup=warmup,
        issue=_ISSUE_AT_LEISURE if at_leisure else _ISSUE,
        profiled=profiled,
        least_clean_s=1.0,
        # On a host so busy that ten steps determine their median within 11%, fifteen gave 10%, and
        # forty 7%: more steps gain little, and cost a script of thirty steps its profile.
        stretch=_STRETCH_AT_LEISURE if at_leisure else 1.5,
        known=None if at_leisure else _KNOWN,
        in_step=in_step,
        sees_epochs=not at_leisure and kind is None,
        kind=kind,
    )


def _issue_beside(steps: int) -> int:
    """The number of issue steps for this few clean ones: as many before them as after; with one or
    two clean steps none, or a short script would have no step left to profile."""
    if steps < _FEWEST_WITH_ISSUE:
        return 0
    return min(_ISSUE, 2 * max(1, (steps + 2) // 4))


def is_known(times: Sequence[float], within: float) -> bool:
    """Whether the median of these is known within this share of itself, with 95% confidence."""
    ordered, count = sorted(times), len(times)
    reach = 0.98 * count**0.5  # 1.96 standard deviations of a binomial with p = 1/2
    low, high = int(count / 2 - reach), int(-(-(count / 2 + reach) // 1)) - 1
    if not 0 <= low <= high < count:
        return False
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return ordered[high] - middle <= within * middle and middle - ordered[low] <= within * middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a user."""

    warmup: int
    steps: int
    profiled: int

    def total(self, share: float = 1.0) -> int:
        """The total number of steps of any kind, if this share of them is of the measured kind."""
        measured = self.steps + _issue_beside(self.steps) + self.profiled
        if share < _NEARLY_ALL:
            measured = math.ceil(measured / (_AS_IT_COMES * share))
        return self.warmup + measured + PROFILER_START

    def spelled(self, spelling: Spelling) -> str:
        if spelling == "arguments":
            return f"watch(warmup={self.warmup}, steps={self.steps}, profiled={self.profiled})"
        return f"--warmup {self.warmup} --steps {self.steps} --profiled {self.profiled}"


# Kinds are not evenly distributed: a window may have to wait longer than the share suggests.
_AS_IT_COMES = 0.7
_NEARLY_ALL = 0.9  # with a larger share, the window is not extended
_FEWEST = Request(warmup=2, steps=2, profiled=1)


def fitting(steps: int, share: float = 1.0) -> Request | None:
    """The largest request that a script of this many steps can fulfil; None if there is none.

    `share`: the share of steps of the measured kind.
    """
    found = None
    for clean in range(_FEWEST.steps, _CLEAN + 1):
        request = Request(
            warmup=min(clean, FEWEST_WARMUP + 2), steps=clean, profiled=min(clean // 2, _PROFILED)
        )
        found = request if request.total(share) <= steps else found
    return found


def shortfall(
    window: str,
    steps: int,
    profiled: int,
    *,
    spelling: Spelling,
    share: float = 1.0,
    how: How = "ended",
) -> str:
    """One line on a script that ended before it was profiled, with options that would fit.

    A script that failed gets no such advice: it did not end for lack of steps.
    """
    what = "script" if spelling == "options" else "loop"
    ended = f"the {what} {how} during its {window}, after {steps} step{'' if steps == 1 else 's'}"
    if how != "ended" or not profiled:
        return ended
    if share < _NEARLY_ALL:
        ended += f", {share:.0%} of them of the kind with most time"
    request = fitting(steps, share)
    if request is None:
        return (
            f"{ended}: at least {_FEWEST.total(share)} steps are needed to measure and profile it"
        )
    none = "no complete step was profiled"
    return f"{ended}, and {none}: {request.spelled(spelling)} would fit in"
