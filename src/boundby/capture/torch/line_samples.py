"""Assigns samples of the script's line to the Python functions of a timeline."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from boundby.capture.host.line_sampler import Sample
from boundby.capture.kineto.names import Origin, frame_of
from boundby.model import PYTHON_FRAMES, HostEvents, Ints, Samples, Timeline

# "train.py(12): step": the file relative to Python's path, and the line at which the function
# begins or, if it ran already when the profiler started, its line at that time.
_FRAME = re.compile(r"(?P<path>.+?)\(\d+\): (?P<function>.*)")


def locate(
    timeline: Timeline, samples: Sequence[Sample], later: int, index: dict[str, int]
) -> Samples:
    """The samples taken in the own code of the user's functions, with the function's row.

    Samples inside other calls tell nothing new: the line of every call is known. `later` is how far
    the profiler's clock is ahead of the trace's; new lines are added to the index.
    """
    host = timeline.host
    times = np.array([sample.time_ns - later for sample in samples], np.int64)
    kept = []
    for sample, start_ns, row in zip(samples, times, _innermost(host, times), strict=True):
        frame = _FRAME.match(timeline.names[host.name[row]]) if row >= 0 else None
        # The sampled function must be the one of the row.
        if frame is None or frame["function"] != sample.function:
            continue
        if not sample.file.replace("\\", "/").endswith(frame["path"]):
            continue
        line = frame_of(f"{frame['path']}({sample.line}): {sample.function}")
        if line.origin is Origin.USER:
            kept.append((start_ns, row, index.setdefault(line.source, len(index))))
    columns = np.array(kept, np.int64).reshape(-1, 3)
    return Samples(
        start_ns=columns[:, 0],
        row=columns[:, 1].astype(np.int32),
        source=columns[:, 2].astype(np.int32),
    )


def _innermost(host: HostEvents, times: Ints) -> Ints:
    """The innermost row around each time, on the thread with most of Python; -1 for none."""
    python = host.thread[np.isin(host.kind, PYTHON_FRAMES)]
    found = np.full(len(times), -1, np.int64)
    if not len(python) or not len(times):
        return found
    threads, counts = np.unique(python, return_counts=True)
    rows = np.flatnonzero(host.thread == threads[np.argmax(counts)])
    at = np.searchsorted(host.start_ns[rows], times, side="right") - 1
    found = np.where(at >= 0, rows[np.maximum(at, 0)], -1)
    ends = np.append(host.start_ns + host.duration_ns, np.iinfo(np.int64).max)
    above = np.append(host.parent, -1)
    while (over := (found >= 0) & (ends[found] <= times)).any():
        found[over] = above[found[over]]
    return found
