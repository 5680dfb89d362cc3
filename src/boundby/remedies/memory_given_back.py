"""A CPU step gives memory back to the system and asks for it again.

What it sees
    Pages that the system handed out in the clean steps, over and over: more of them than the
    process has grown by. Linux counts them, and what the system did for the process meanwhile;
    elsewhere nothing is said.

Why it costs time
    A page is cleared when it is first written to, with a trip into the system for each 4 KiB, and
    when it is given back all cores must forget of it. torch's allocator on ARM (mimalloc) gives
    back what was free for 10 ms; the C library's, on other CPUs, all pieces of more than 32 MiB at
    once, and what is free at the end of its memory. Activations of a larger batch come to that.

The change
    `export MIMALLOC_PURGE_DELAY=-1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184`, set
    before the process starts: the first is for mimalloc, the others for the C library.

When it does not help
    When memory grows, as a cache's does: fresh pages are needed then. When another allocator is
    preloaded, which has settings of its own. The process holds on to the most that it ever had.

Proven on
    A vision transformer with batches of 32 on two cores of a Neoverse N1: 384 and 392 ms instead of
    438 to 463, 1.19x predicted; a recurrent network: 242 and 248 instead of 266 and 270, 22 ms
    predicted. By the C library's settings alone, a small decoder on two cores of an x86 server: 160
    and 172 ms instead of 199 and 201.
"""

from __future__ import annotations

from boundby import units
from boundby.picture import Change, Picture
from boundby.program.allocator import KEPT_MEMORY
from boundby.remedies.remedy import Imagined, Remedy

_PAGE = 4096
# Of the step: less is not worth a setting.
_WORTHWHILE = 0.02
# What is smaller comes out of pages that others have written to.
_LARGE = 16 * _PAGE
# With others that want pages at the same time, and with giving back, one costs more than when it
# is tried alone: so many times at most, or it is something else that the system did.
_MOST = 4.0
# Two threads may have done it side by side; and caches are colder behind it.
_WORST, _BEST = 0.5, 1.5
# Of a piece of work's time, what clearing its memory may be.
_MOST_OF_WORK = 0.9


def imagine(picture: Picture) -> Imagined | None:
    seen, flow = picture.circumstances, picture.flow
    if picture.on_device or flow is None or not seen.steps_ns or not seen.fresh_page_ns:
        return None
    pages = max(0, seen.fresh_pages - seen.kept_pages) / len(seen.steps_ns)
    made = {index: sum(flow.values[v].bytes for v in flow.makes[index]) for index in flow.order}
    large = {index: size for index, size in made.items() if size >= _LARGE}
    if not pages or not large:
        return None
    asked = seen.system_ns / seen.fresh_pages
    each = min(_MOST * seen.fresh_page_ns, max(seen.fresh_page_ns, asked))
    lost = pages * each
    if lost < _WORTHWHILE * picture.wall_ns:
        return None
    total = sum(large.values())

    def kept(part: float) -> Change:
        work_ns = {}
        for index, size in large.items():
            ns = picture.works[index].ns
            work_ns[index] = ns - min(_MOST_OF_WORK * ns, part * lost * size / total)
        return Change(work_ns=work_ns)

    asking = sorted(large, key=lambda index: -large[index])
    return Imagined(
        worst=kept(_WORST),
        expected=kept(1.0),
        best=kept(_BEST),
        where=picture.lines(picture.works[index] for index in asking)[:3],
        change=f"{KEPT_MEMORY.change}  # set before it is started",
        assumes=f"{pages:,.0f} pages a step ({units.size(pages * _PAGE)}) are asked for again that "
        "were given back; the process may keep the memory that it had at most",
    )


REMEDY = Remedy(fault="memory-given-back", group="overhead", document=__doc__, imagine=imagine)
