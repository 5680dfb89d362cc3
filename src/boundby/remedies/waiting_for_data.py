"""The step waits for its next batch.

What it sees
    Time inside a DataLoader's `__next__` in which the device has nothing to do.

Why it costs time
    With no workers the batch is made between the steps, by the process that also launches
    kernels. With too few, or slow ones, the queue runs empty.

The change
    `DataLoader(..., num_workers=4, pin_memory=True, persistent_workers=True)`, and more
    `prefetch_factor` for uneven batches.

When it does not help
    When the machine has no spare cores, or the storage is the limit.

Proven on
    Not yet.
"""

from __future__ import annotations

import numpy as np

from boundby.account.nesting import nearest
from boundby.model import HostKind
from boundby.picture import Change, Picture
from boundby.remedies.remedy import Imagined, Remedy

# What is left of a batch's time when a worker has it ready: taking it out of a queue.
_WORST, _EXPECTED, _BEST = 0.30, 0.08, 0.01


def imagine(picture: Picture) -> Imagined | None:
    host = picture.timeline.host
    waiting = host.kind == HostKind.DATA
    outermost = np.flatnonzero(waiting & (nearest(host.parent, waiting) == np.arange(len(host))))
    waited = picture.account.overhead.parts.get("data", 0.0)
    if not len(outermost) or waited <= 0:
        return None
    return Imagined(
        worst=_shorter(picture, waited, _WORST),
        expected=_shorter(picture, waited, _EXPECTED),
        best=_shorter(picture, waited, _BEST),
        where=_lines(picture, outermost),
        change="DataLoader(dataset, num_workers=4, pin_memory=True, persistent_workers=True)",
        assumes="there are idle cores to make batches on",
    )


def _shorter(picture: Picture, waited: float, left: float) -> Change:
    script = picture.script
    if script is None:
        return Change(python_ns=waited * (1 - left))
    return Change(host_ns=script.host_ns - np.minimum(script.data_ns, script.host_ns) * (1 - left))


def _lines(picture: Picture, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    sources = picture.timeline.sources
    found = {int(source) for source in picture.timeline.host.source[rows]}
    return [sources[source] for source in found if 0 <= source < len(sources)]


REMEDY = Remedy(fault="waiting-for-data", group="overhead", document=__doc__, imagine=imagine)
