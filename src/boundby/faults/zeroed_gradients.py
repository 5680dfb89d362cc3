"""Gradients are filled with zeros before every step and then added to.

What it looks for
    Fills inside `zero_grad`, and the additions with which the backward accumulates into these
    gradients.

Why it costs time
    The fill writes the gradient once. The backward computes the new gradient and adds it, which
    reads two tensors and writes one. If the old gradient is None, the new one is kept as it is: the
    fill and the addition disappear, together with one launch each per parameter.

What to change
    Call `optimizer.zero_grad(set_to_none=True)`, the default since PyTorch 2.0, or
    `model.zero_grad(set_to_none=True)`. In your own optimizer write `p.grad = None` instead of
    `p.grad.zero_()`.

When it does not help
    When something else holds the gradient tensors: a captured CUDA graph, or gradients that are
    views of one flat buffer (DDP's `gradient_as_bucket_view` also works with None, other wrappers
    may not). With gradient accumulation only the first addition disappears. When the device limits
    the step and the model is small, this traffic is a small part of the step.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import re

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.fixes import optimizers
from boundby.model.assumptions.savings import GRADIENT_ADDITIONS_LEFT, ZEROING_LAUNCHES_LEFT
from boundby.step.model import Edit, StepView
from boundby.step.nesting import nearest

_ZEROING = ("zero_grad",)
# torch's `zero_grad`, as torch marks it or as a profiler names its Python function.
_TORCHS = re.compile(r"^Optimizer\.zero_grad#|(?:^|/)torch/")
_ACCUMULATING = ("AccumulateGrad",)
_FILLS = ("fill_", "zero_", "_foreach_zero_", "Memset")
_ADDITIONS = ("aten::add_",)


def detect(step: StepView) -> Detection | None:
    fills = _inside(step, _ZEROING, _FILLS)
    if not fills:
        return None
    # With gradient accumulation, each gradient is added to several times per zeroing.
    added = _inside(step, _ACCUMULATING, _ADDITIONS)[: _zeroed(step, fills)]

    def kept(left: float) -> dict[int, float]:
        gone = dict.fromkeys(fills, 0.0)
        return gone | {index: step.op_records[index].ns * left for index in added}

    where = step.lines(step.op_records[index] for index in fills)[:1]
    return Detection(
        low=Edit.set_time(
            kept(GRADIENT_ADDITIONS_LEFT.high), launch_share=GRADIENT_ADDITIONS_LEFT.high
        ),
        expected=Edit.set_time(
            kept(GRADIENT_ADDITIONS_LEFT.value), launch_share=ZEROING_LAUNCHES_LEFT.value
        ),
        high=Edit.set_time(kept(GRADIENT_ADDITIONS_LEFT.low), launch_share=0.0),
        where=where,
        change=f"p.grad = None  # instead of zeros, at {where[0]}"
        if where and _by_the_script(step, fills)
        else "optimizer.zero_grad(set_to_none=True)",
        assumes="no code keeps references to gradient tensors between steps",
    )


def _inside(step: StepView, around: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """Operations of these names inside events of those, in order of issue."""
    within = step.within(*around)
    found = [
        index
        for index, record in enumerate(step.op_records)
        if record.row >= 0 and within[record.row] and any(name in record.name for name in names)
    ]
    return sorted(found, key=lambda index: step.op_records[index].row)


def _by_the_script(step: StepView, fills: list[int]) -> bool:
    """Whether the script's own code zeroes, in a `zero_grad` without torch's argument."""
    timeline = step.timeline
    zeroing = np.array([any(part in name for part in _ZEROING) for name in timeline.names])
    around = nearest(timeline.host.parent, zeroing[timeline.host.name])
    op_records = [step.op_records[index] for index in fills]
    names = (timeline.names[timeline.host.name[around[record.row]]] for record in op_records)
    return all(record.inside < 0 for record in op_records) and not any(map(_TORCHS.search, names))


def _zeroed(step: StepView, fills: list[int]) -> int:
    """How many gradients the fills cover: a `_foreach` one fills a list of them."""
    total = 0
    for index in fills:
        call = step.call(step.op_records[index])
        total += max(1, len(call.tensors)) if call is not None else 1
    return total


FAULT = Fault(
    id="zeroed-gradients",
    title="Gradients filled with zeros",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    fixes=(optimizers.GRADIENTS_TO_NONE,),
)
