"""What the pages of memory cost that the system hands out to a step."""

from __future__ import annotations

import statistics

from boundby.model.assumptions.host import PAGE_COST_FACTOR, PAGE_THREADS
from boundby.model.host_counters import HostCounters
from boundby.step.model import StepView


def page_ns(seen: HostCounters) -> float:
    """CPU time of the system for one page, on all threads together: as counted in the clean steps,
    or else as tried alone. Nothing where it was not tried: the system did other things too."""
    if not seen.fresh_pages:
        return seen.fresh_page_ns
    most = PAGE_COST_FACTOR.value * (seen.cores or 1) * seen.fresh_page_ns
    return min(most, seen.system_ns / seen.fresh_pages)


def waited_share(seen: HostCounters) -> float:
    """The share of that time by which the step is longer."""
    return min(1.0, PAGE_THREADS.value / (seen.cores or 1))


def pages_ns(step: StepView, pages: float) -> float:
    """What so many pages cost a step on a CPU."""
    seen = step.host_counters
    if step.device != "cpu":
        return 0.0
    return step.cpu_contention * pages * page_ns(seen) * waited_share(seen)


def pages_a_step(step: StepView) -> float:
    """Pages that are handed to a step."""
    seen = step.host_counters.step_pages
    return statistics.fmean(seen) if seen else 0.0


def kept_a_step(step: StepView) -> float:
    """Those of them that stay: by so many pages the process grows in a step."""
    seen = step.host_counters
    if not seen.kept_pages or not seen.step_pages:
        return 0.0
    return min(pages_a_step(step), seen.kept_pages / len(seen.step_pages))
