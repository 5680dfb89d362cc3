"""Files are written or read in every step.

What it looks for
    Calls in the step that write files: `torch.save`, `json.dump`, `numpy.save`, `write`,
    `flush`, `fsync`, image, table and archive writers, commits to SQLite, copies of files,
    TensorBoard; or read files of tensors and arrays outside of a DataLoader: `torch.load`,
    `numpy.load`, safetensors; with the line of the script that led to them.

Why it costs time
    Serialising copies all data, the system copies it again, and `fsync` waits for the disk. The
    step waits for all of it.

What to change
    Write every few hundred steps: `if step % 500 == 0: torch.save(...)`. Keep a log open, collect
    its lines, and write them in one go without `fsync`. Read a file once, before the loop.

When it does not help
    When every step must survive a crash. When each step reads another file: then a DataLoader's
    workers can read it.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import HostKind
from boundby.model.assumptions.program_savings import FILE_WRITES_LEFT
from boundby.step.frames import costly_lines, file_loads, file_writes, times_by_line
from boundby.step.model import StepView
from boundby.step.nesting import Mask
from boundby.step.rows import without_rows

_OPENS = re.compile(r"^<built-in (?:function open>|method (?:close|__exit__) of _io\.)")
_MOST_LINES = 4  # display limit


def detect(step: StepView) -> Detection | None:
    writes = file_writes(step)
    writes |= _opened(step, writes)
    loads = file_loads(step)
    writes |= loads
    times = times_by_line(step, writes)
    lines = costly_lines(step, times)
    if not lines:
        return None
    reads = sum(times_by_line(step, loads).values()) > 0.5 * sum(times.values())
    rows = step.inside(writes)
    return Detection(
        low=without_rows(step, rows, FILE_WRITES_LEFT.high),
        expected=without_rows(step, rows, FILE_WRITES_LEFT.value),
        high=without_rows(step, rows),
        where=lines[:_MOST_LINES],
        change="# before the loop, once: read the file"
        if reads
        else "if step % 500 == 0: ...  # write the file",
        assumes="the file is the same in every step"
        if reads
        else "a file written every few hundred steps is enough",
    )


def _opened(step: StepView, writes: Mask) -> Mask:
    """Opening and closing files in the functions that write them."""
    host, names = step.timeline.host, step.timeline.names
    opens = np.array([bool(_OPENS.match(name)) for name in names] or [False])
    writing = np.unique(host.parent[writes])
    found: Mask = (host.kind == HostKind.PYTHON) & opens[host.name]
    return found & np.isin(host.parent, writing)


FAULT = Fault(
    id="files-in-step",
    title="Files are written or read in every step",
    kind="mistake",
    group="overhead",
    excludes=("python-in-step",),
    document=__doc__,
    detect=detect,
)
