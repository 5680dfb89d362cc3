"""The step frees device memory and allocates it again.

What it looks for
    `cudaMalloc` and `cudaFree` inside a step after the warm-up. In a live run torch's own counters
    show whether they also occur in the steps without a profiler.

Why it costs time
    torch caches freed memory and reuses it, so a warm step needs no driver allocation. If no cached
    block is large enough although enough memory is free in total, torch frees its cache and
    allocates again: `cudaFree` waits until the device is idle, and each driver call takes up to
    milliseconds.

What to change
    Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` in the environment: segments then grow
    instead of being replaced. Or hold less memory: gradient checkpointing, a smaller batch. If
    shapes differ between steps, pad them to a few sizes.

When it does not help
    When memory is full and not fragmented: only holding less memory helps. When the script calls
    `torch.cuda.empty_cache()` in its loop: remove the call. With some drivers tensors in expandable
    segments cannot be shared between processes.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.fixes import allocator, checkpointing
from boundby.model import Ints, units
from boundby.model.assumptions.savings import ALLOCATOR_CALLS_LEFT
from boundby.model.intervals import Coverage
from boundby.step.model import Edit, HostTime, StepView

_CALLS = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree")
# Fewer calls per clean step come from something that happens now and then.
_FEWEST_A_STEP = 0.5


def detect(step: StepView) -> Detection | None:
    rows = _calls(step)
    seen = step.host_counters
    steps = len(seen.steps_ns)
    if not len(rows) or _may_be_first(step):
        return None
    if seen.allocations is not None and seen.allocations < _FEWEST_A_STEP * max(1, steps):
        return None
    spent = float(step.timeline.host.duration_ns[rows].sum())
    calls = _host_time(step, rows)
    low, expected, high = (
        Edit.save_host(calls * (1 - left)) for left in ALLOCATOR_CALLS_LEFT.high_to_low
    )
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=_lines(step, rows),
        change="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # before it is started",
        assumes=f"{len(rows)} calls a step, {units.time(spent)}, are due to free blocks "
        "that are too small" + _fullness(step),
    )


def _may_be_first(step: StepView) -> bool:
    """Whether the step is all that a trace contains: a first step has to allocate."""
    notes = [] if step.observation is None else step.observation.notes
    return any(note.code == "no-repeated-step" for note in notes)


def _calls(step: StepView) -> Ints:
    names = step.timeline.names
    wanted = np.array([name in _CALLS for name in names] or [False])
    return np.flatnonzero(wanted[step.timeline.host.name])


def _host_time(step: StepView, rows: Ints) -> HostTime:
    """The calls' time before each action. Most of it is waiting for the driver, which a profiler
    hardly slows."""
    host, launches = step.timeline.host, step.launches
    done = (host.start_ns + host.duration_ns)[launches.rows]
    since = np.concatenate([[step.timeline.start_ns], done])
    until = np.concatenate([done, [step.timeline.end_ns]])
    spent = Coverage(host.start_ns[rows], host.duration_ns[rows]).between(since, until)
    spent = np.minimum(spent, np.append(launches.host_ns, launches.after_ns))
    return HostTime(before_ns=spent[:-1], after_ns=float(spent[-1]))


def _fullness(step: StepView) -> str:
    peak, total = step.host_counters.peak_bytes, step.machine.memory_bytes
    return f" ({units.size(peak)} of {units.size(total)} are in use)" if peak and total else ""


def _lines(step: StepView, rows: Ints) -> list[str]:
    """The lines that allocate memory, the longest first."""
    timeline = step.timeline
    spent: dict[int, int] = {}
    for row in rows:
        source = int(timeline.host.source[row])
        spent[source] = spent.get(source, 0) + int(timeline.host.duration_ns[row])
    ranked = sorted(spent, key=lambda source: -spent[source])
    return [timeline.sources[s] for s in ranked if 0 <= s < len(timeline.sources)][:3]


FAULT = Fault(
    id="fragmented-memory",
    title="Allocator calls the driver in every step",
    kind="tuning",
    group="overhead",
    devices=("cuda",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
    fixes=(
        allocator.EXPANDABLE_SEGMENTS,
        checkpointing.CHECKPOINTS,
    ),
)
