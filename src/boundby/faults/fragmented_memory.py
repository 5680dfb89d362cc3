"""The step gives device memory back and asks for it again.

What it sees
    `cudaMalloc` and `cudaFree` inside a step that has long been warm. Where the script runs here,
    torch's own counters say whether they also come in the steps that no profiler saw.

Why it costs time
    torch keeps memory that it has freed and hands it out again, so that a warm step asks the
    driver for none. When no free piece is large enough, though there is enough in all, it frees
    what it has cached and asks anew: `cudaFree` waits until the device is idle, and each call
    takes the driver up to milliseconds.

The change
    `export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: segments that grow instead
    of new ones, so that pieces fit. Or less to hold: gradient checkpointing, a smaller batch. Where
    shapes differ from step to step, pad them to a few sizes.

When it does not help
    When memory is full and not fragmented: then only holding less helps. When the script itself
    calls `torch.cuda.empty_cache()` in its loop: take that out. With expandable segments a tensor
    cannot be shared between processes by every driver.

Proven on
    Not yet.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import Ints, units
from boundby.step.model import Edit, StepModel

_CALLS = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree")
# Fewer calls than this a clean step come from something that happens now and then.
_FEWEST_A_STEP = 0.5
# What of the calls' time is still spent with segments that grow: worst, expected, best.
_LEFT = (0.7, 0.2, 0.0)


def detect(step_model: StepModel) -> Detection | None:
    rows = _calls(step_model)
    seen = step_model.host_counters
    steps = len(seen.steps_ns)
    if step_model.script is None or not len(rows):
        return None
    if seen.allocations is not None and seen.allocations < _FEWEST_A_STEP * max(1, steps):
        return None
    spent = float(step_model.timeline.host.duration_ns[rows].sum())
    # Most of it is waiting for the driver, which a profiler hardly makes longer.
    lost = spent * step_model.stall_sensitivity(spent)
    worst, expected, best = (Edit(python_ns=lost * (1 - left)) for left in _LEFT)
    return Detection(
        worst=worst,
        expected=expected,
        best=best,
        where=_lines(step_model, rows),
        change="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # before it is started",
        assumes=f"{len(rows)} calls a step, {units.time(spent)}, come of pieces that do not fit"
        + _fullness(step_model),
    )


def _calls(step_model: StepModel) -> Ints:
    names = step_model.timeline.names
    wanted = np.array([name in _CALLS for name in names] or [False])
    return np.flatnonzero(wanted[step_model.timeline.host.name])


def _fullness(step_model: StepModel) -> str:
    peak, total = step_model.host_counters.peak_bytes, step_model.machine.memory_bytes
    return f" ({units.size(peak)} of {units.size(total)} are in use)" if peak and total else ""


def _lines(step_model: StepModel, rows: Ints) -> list[str]:
    """The lines that ask for memory, the longest first."""
    timeline = step_model.timeline
    spent: dict[int, int] = {}
    for row in rows:
        source = int(timeline.host.source[row])
        spent[source] = spent.get(source, 0) + int(timeline.host.duration_ns[row])
    ranked = sorted(spent, key=lambda source: -spent[source])
    return [timeline.sources[s] for s in ranked if 0 <= s < len(timeline.sources)][:3]


FAULT = Fault(fault="fragmented-memory", group="overhead", document=__doc__, detect=detect)
