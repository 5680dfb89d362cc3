"""A CPU step gives memory back to the system and asks for it again.

What it sees
    Pages that the system handed out in the clean steps, over and over: more of them than the
    process has grown by. Linux counts them, and what the system did for the process meanwhile;
    elsewhere nothing is said.

Why it costs time
    A page is cleared when it is first written to, with a trip into the system for each, and when it
    is given back all cores must forget of it. torch's allocator on ARM (mimalloc) gives back what
    was free for some time; the C library's, on other CPUs, all pieces of more than 32 MiB at once,
    and what is free at the end of its memory. Activations of a larger batch come to that.

The change
    `export MIMALLOC_PURGE_DELAY=-1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184`, set
    before the process starts: the first is for mimalloc, the others for the C library.

When it does not help
    When memory grows, as a cache's does: fresh pages are needed then. When they come of something
    else, such as processes that are forked in each step, or memory that the system moves between
    sockets. When another allocator is preloaded, which has settings of its own. The process holds
    on to the most that it ever had.

Proven on
    A vision transformer with batches of 32 on two cores of a Neoverse N1: 384 to 392 ms instead of
    438 to 463, 65 ms less predicted; a recurrent network: 242 and 248 instead of 266 and 270, 20 ms
    less predicted. By the C library's settings, a small decoder on two cores of an x86 server: 160
    and 172 ms instead of 199 and 201.
"""

from __future__ import annotations

import mmap
import statistics

from boundby.capture.host.counters import HostCounters
from boundby.faults.fault import Detection, Fault
from boundby.fixes.allocator import KEPT_MEMORY
from boundby.model import units
from boundby.step.model import Edit, StepModel

_PAGE = mmap.PAGESIZE
# Of the step: less is not worth a setting.
_WORTHWHILE = 0.02
# What is smaller comes out of pages that others have written to.
_LARGE = 16 * _PAGE
# Of steps that are handed none, one that is handed many has had something else to do.
_UNEVEN = 2.0
# With giving back, and with others that want pages too, one costs a thread more than when it is
# tried alone: so many times at most, or it is something else that the system did.
_MOST = 4.0
# Two threads that are handed pages side by side took as long as one after the other would, with
# the colder caches behind it; with more of them that was not tried.
_SIDE_BY_SIDE = 2
_WORST, _BEST = 0.5, 1.5
# Of a piece of work's time, what clearing its memory may be.
_MOST_OF_WORK = 0.9
_NAMED = 8


def detect(step_model: StepModel) -> Detection | None:
    seen, flow = step_model.host_counters, step_model.flow
    if step_model.on_device or flow is None:
        return None
    pages = _given_back(seen)
    large = {
        index: size
        for index in flow.order
        if not step_model.op_records[index].name.endswith(
            "_"
        )  # it writes where something is already
        and (size := sum(flow.values[value].bytes for value in flow.makes[index])) >= _LARGE
    }
    threads = seen.cores or 1
    each = min(_MOST * threads * seen.fresh_page_ns, seen.system_ns / max(1, seen.fresh_pages))
    lost = pages * each * min(1.0, _SIDE_BY_SIDE / threads)
    if not large or lost < _WORTHWHILE * step_model.wall_ns:
        return None
    total = sum(large.values())

    def kept(lost: float) -> Edit:
        work_ns = {}
        for index, size in large.items():
            ns = step_model.op_records[index].ns
            work_ns[index] = ns - min(_MOST_OF_WORK * ns, lost * size / total)
        return Edit(work_ns=work_ns)

    asking = sorted(large, key=lambda index: -large[index])
    return Detection(
        worst=kept(_WORST * lost),
        expected=kept(lost),
        best=kept(_BEST * pages * each),
        where=step_model.lines(step_model.op_records[index] for index in asking[:_NAMED])[:3],
        change=KEPT_MEMORY.change,
        assumes=f"{pages:,.0f} pages a step ({units.size(pages * _PAGE)}) are asked for again that "
        "were given back; the process may keep the memory that it had at most",
    )


def _given_back(seen: HostCounters) -> float:
    """Pages a step that the process had before; none where nobody tells."""
    if seen.kept_pages is None or not seen.step_pages:
        return 0.0
    usual = min(statistics.fmean(seen.step_pages), _UNEVEN * statistics.median(seen.step_pages))
    return max(0.0, usual - seen.kept_pages / len(seen.step_pages))


FAULT = Fault(fault="memory-given-back", group="overhead", document=__doc__, detect=detect)
