"""A CPU step returns memory to the operating system and requests it again.

What it looks for
    Page faults in the clean steps that exceed the growth of the process. Linux counts them,
    together with the system time of the process; on other systems nothing is reported.

Why it costs time
    The system clears each page on its first write, with one page fault each, and all cores must
    invalidate a page that is returned. torch's allocator on ARM (mimalloc) returns memory that has
    been free for some time. The C library on other CPUs returns blocks of more than 32 MiB at once,
    and free memory at the end of its heap. The activations of a larger batch reach this size.

What to change
    Set these before the process starts: `export MIMALLOC_PURGE_DELAY=-1 MALLOC_MMAP_MAX_=0
    MALLOC_TRIM_THRESHOLD_=17179869184`. The first is for mimalloc, the others are for the C
    library.

When it does not help
    When memory really grows, as with a cache. When the page faults have another cause, such as
    processes forked in each step or memory that the system moves between sockets. When another
    allocator is preloaded, which has its own settings. The process keeps its peak memory.

Measured on
    A vision transformer with batches of 32 on two cores of a Neoverse N1: 384 to 392 ms instead of
    438 to 463 ms; predicted saving 65 ms. A recurrent network: 242 and 248 ms instead of 266 and
    270 ms; predicted saving 20 ms. With the settings of the C library, a small decoder on two cores
    of an x86 server: 160 and 172 ms instead of 199 and 201 ms.
"""

from __future__ import annotations

import mmap
import statistics

from boundby.faults.fault import Detection, Fault, Stage
from boundby.fixes import allocator
from boundby.model import units
from boundby.model.assumptions.host import PAGE_SHARE, UNEVEN_PAGES
from boundby.model.assumptions.program_savings import PAGES_KEPT_GAIN
from boundby.model.host_counters import HostCounters
from boundby.step.fresh_pages import page_ns, waited_share
from boundby.step.model import Edit, StepView

_PAGE = mmap.PAGESIZE
# A smaller share of the step is not worth a setting.
_WORTHWHILE = 0.02
# Smaller allocations come from pages that others have written to.
_LARGE = 16 * _PAGE
_NAMED = 8  # time limit: operators whose lines are looked up


def detect(step: StepView) -> Detection | None:
    seen, flow = step.host_counters, step.flow
    if flow is None:
        return None
    pages = _given_back(seen)
    large = {
        index: size
        for index in flow.order
        # in place: it writes where something already is
        if not step.op_records[index].name.endswith("_")
        and (size := sum(flow.values[value].bytes for value in flow.makes[index])) >= _LARGE
    }
    each = page_ns(seen)
    lost = pages * each * waited_share(seen)
    if not large or lost < _WORTHWHILE * step.wall_ns:
        return None
    total = sum(large.values())

    def kept(lost: float) -> Edit:
        op_ns = {}
        for index, size in large.items():
            ns = step.op_records[index].ns
            op_ns[index] = ns - min(PAGE_SHARE.value * ns, lost * size / total)
        return Edit.set_time(op_ns)

    asking = sorted(large, key=lambda index: -large[index])
    return Detection(
        low=kept(PAGES_KEPT_GAIN.low * lost),
        expected=kept(lost),
        high=kept(PAGES_KEPT_GAIN.high * pages * each),
        where=step.lines(step.op_records[index] for index in asking[:_NAMED])[:3],
        change=allocator.KEPT_MEMORY.change,
        assumes=f"{pages:,.0f} pages a step ({units.size(pages * _PAGE)}) are returned and "
        "requested again; the process may keep its peak memory",
    )


def _given_back(seen: HostCounters) -> float:
    """Pages per step that the process had before; none if unknown."""
    if seen.kept_pages is None or not seen.step_pages:
        return 0.0
    usual = min(
        statistics.fmean(seen.step_pages), UNEVEN_PAGES.value * statistics.median(seen.step_pages)
    )
    return max(0.0, usual - seen.kept_pages / len(seen.step_pages))


FAULT = Fault(
    id="memory-given-back",
    title="Memory returned to the operating system in every step",
    kind="tuning",
    group="overhead",
    devices=("cpu",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
    fixes=(allocator.KEPT_MEMORY,),
)
