"""Convolutions of fixed shapes run without cudnn's benchmark.

What it looks for
    `torch.backends.cudnn.benchmark` off, as torch itself reports, in a program whose convolutions
    take a part of the step, while all steps of the kind have the same shapes.

Why it costs time
    Without it cudnn chooses an algorithm by rule. With it, each new shape is tried with all
    algorithms once, and the fastest is kept.

What to change
    `torch.backends.cudnn.benchmark = True` once at the start.

When it does not help
    When shapes change from step to step: each new one is tried again. When the rule has chosen the
    fastest, as for common shapes in 16 bits.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.fixes import debug_settings
from boundby.model.assumptions.savings import CONVOLUTION_ALGORITHM_GAIN
from boundby.step.model import Edit, StepView

_COUNTS = 0.05  # share of the step; less is not reported


def detect(step: StepView) -> Detection | None:
    if step.evidence.settings.cudnn_benchmark is not False or not _has_fixed_shapes(step):
        return None
    found = [i for i, op in enumerate(step.op_records) if "convolution" in op.name and op.floor_ns]
    if sum(step.op_records[i].ns for i in found) < _COUNTS * step.wall_ns:
        return None

    def brought(share: float) -> Edit:
        times = {}
        for index in found:
            record = step.op_records[index]
            times[index] = record.ns - share * max(0.0, record.ns - (record.floor_ns or 0.0))
        return Edit.set_time(times)

    return Detection(
        low=Edit(),
        expected=brought(CONVOLUTION_ALGORITHM_GAIN.value),
        high=brought(CONVOLUTION_ALGORITHM_GAIN.high),
        where=step.lines(step.op_records[i] for i in found)[:3],
        change=debug_settings.CUDNN_BENCHMARK.change,
        assumes="some convolution has a faster algorithm; prove tries it",
    )


def _has_fixed_shapes(step: StepView) -> bool:
    """Whether no other steps of the same mode with other shapes were seen."""
    timing = step.observation.step if step.observation is not None else None
    if timing is None:
        return True
    mode = timing.kind.mode
    return not any(other.mode == mode for other in timing.others)


FAULT = Fault(
    id="cudnn-benchmark",
    title="cudnn.benchmark is off",
    kind="tuning",
    group="compute",
    devices=("cuda",),
    document=__doc__,
    detect=detect,
    fixes=(debug_settings.CUDNN_BENCHMARK,),
    excludes=("far-from-roof",),
)
