"""Loops over a batch's samples in the script: the same small operators, once per sample.

That a call occurs as often as there are samples is not enough: a model may have as many layers, or
parameters of one size. A loop over samples takes them out of the batch, one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from boundby.model import Phase
from boundby.ops.traffic import argument
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord
from boundby.step.rows import share_between, user_frames

# Batches with fewer samples are not reported.
_FEWEST_SAMPLES = 8
_TAKES_OUT = "aten::select"
# A line within this many lines of one that takes out a sample may be in the same loop.
_NEAR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLoop:
    """One line that runs for each sample. `calls`: operations that are the same call each time."""

    source: int
    calls: tuple[tuple[int, ...], ...]

    @property
    def op_records(self) -> Iterator[int]:
        return (index for group in self.calls for index in group)


def find_sample_loops(step: StepView) -> list[SampleLoop]:
    """Lines that take samples out of a batch, or near one that does, and make one call as often as
    there are samples, on tensors without the sample dimension.

    Everything else that such a line calls that often is called per sample too: also what makes a
    whole batch's tensor every time, such as the gradient of taking out one sample.
    """
    samples = step.samples or 0
    if samples < _FEWEST_SAMPLES or not (near := _near(step, _taking_out(step, samples))):
        return []
    at: dict[int, dict[tuple[object, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is None or record.source not in near or not _may_loop(step, record):
            continue
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in call.tensors)
        at[record.source][record.phase, call.name, shapes].append(index)
    loops = []
    for source, calls in at.items():
        repeated = [group for group in calls.values() if _for_each(len(group), samples)]
        if any(not holds_samples(step, group[0]) for group in repeated):
            loops.append(SampleLoop(source=source, calls=tuple(tuple(group) for group in repeated)))
    return loops


def _taking_out(step: StepView, samples: int) -> set[int]:
    """Lines that take as many parts out of tensors of all samples as there are samples."""
    host, calls = step.timeline.host, step.timeline.calls
    selects: dict[int, int] = defaultdict(int)
    for row in np.flatnonzero((host.call >= 0) & (host.source >= 0)):
        call = calls[host.call[row]]
        if call.name != _TAKES_OUT or not call.tensors:
            continue
        if call.tensors[0].shape[:1] == (samples,) and argument(call, 1) == 0:
            selects[int(host.source[row])] += 1
    return {source for source, count in selects.items() if count >= samples - 1}


def _near(step: StepView, sources: set[int]) -> set[int]:
    """The lines together with their neighbours."""
    places = [_place(line) for line in step.timeline.sources]
    wanted = {
        (file, line + off)
        for file, line in (places[source] for source in sources)
        for off in range(-_NEAR, _NEAR + 1)
    }
    return {at for at, place in enumerate(places) if place in wanted}


def _place(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else -_NEAR


def dispatch_ns(step: StepView, loops: Iterable[SampleLoop]) -> float:
    """The time on a CPU to call the loops' operations, with the Python in between: all at their
    lines, and at others while they run."""
    python = {row.where: row.parts.get("python", 0.0) for row in step.line_rows}
    shares: dict[str, float] = defaultdict(float)
    for loop in loops:
        shares[step.timeline.sources[loop.source]] = 1.0
        for line, part in share_between(step, *_span(step, loop)).items():
            shares[line] = max(shares[line], part)
    return step.cpu_contention * sum(
        python.get(line, 0.0) * share for line, share in shares.items()
    )


def _span(step: StepView, loop: SampleLoop) -> tuple[int, int]:
    """Start and end of a loop that ran once: all samples in one call of its function."""
    host, frames = step.timeline.host, step.memoised(user_frames)
    rows = [
        record.row
        for record in (step.op_records[index] for index in loop.op_records)
        if record.row >= 0 and record.phase != Phase.BACKWARD
    ]
    if not rows or len(np.unique(frames[rows])) > 1:
        return 0, 0
    ends = host.start_ns[rows] + host.duration_ns[rows]
    return int(host.start_ns[rows].min()), int(ends.max())


def holds_samples(step: StepView, index: int) -> bool:
    """Whether a tensor argument of an operation has a dimension of the batch size, or the first
    matrix a multiple of it, such as rows of all words."""
    call, samples = step.call(step.op_records[index]), step.samples or 0
    if call is None or not samples:
        return False
    rows = next((tensor.shape[0] for tensor in call.tensors if len(tensor.shape) > 1), 1)
    return rows % samples == 0 or any(samples in tensor.shape for tensor in call.tensors)


def _may_loop(step: StepView, record: OpRecord) -> bool:
    """Whether an operation may be in such a loop: an optimizer loops over parameters, and a loader
    over samples that it makes; other faults cover both."""
    return record.source >= 0 and record.phase != Phase.OPTIMIZER and not step.is_for_data(record)


def _for_each(count: int, samples: int) -> bool:
    """Whether a call occurs once per sample; a sum of n samples has n - 1 additions."""
    return count >= samples - 1 and (count % samples == 0 or (count + 1) % samples == 0)
