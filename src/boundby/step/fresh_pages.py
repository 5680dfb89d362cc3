"""The cost of memory pages that the operating system gives to a step."""

from __future__ import annotations

import statistics

from boundby.model.assumptions.host import PAGE_COST_FACTOR, PAGE_THREADS
from boundby.model.host_counters import HostCounters
from boundby.step.model import StepView


def page_ns(counters: HostCounters) -> float:
    """CPU time of the system for one page, on all threads together: as counted in the clean steps,
    or as benchmarked. Zero without a benchmark, because the system's time includes other work."""
    if not counters.fresh_pages:
        return counters.fresh_page_ns
    most = PAGE_COST_FACTOR.value * (counters.cores or 1) * counters.fresh_page_ns
    return min(most, counters.system_ns / counters.fresh_pages)


def waited_share(counters: HostCounters) -> float:
    """The share of that CPU time by which the step becomes longer."""
    return min(1.0, PAGE_THREADS.value / (counters.cores or 1))


def pages_ns(step: StepView, pages: float) -> float:
    """The cost of this many pages in a step on a CPU."""
    counters = step.host_counters
    if step.device != "cpu":
        return 0.0
    return step.cpu_contention * pages * page_ns(counters) * waited_share(counters)


def pages_per_step(step: StepView) -> float:
    """How many pages the system gives to the process in a step."""
    pages = step.host_counters.step_pages
    return statistics.fmean(pages) if pages else 0.0


def kept_pages_per_step(step: StepView) -> float:
    """How many of those pages the process keeps: its growth in a step."""
    counters = step.host_counters
    if not counters.kept_pages or not counters.step_pages:
        return 0.0
    return min(pages_per_step(step), counters.kept_pages / len(counters.step_pages))
