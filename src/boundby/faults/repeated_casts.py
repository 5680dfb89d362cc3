"""Weights are cast to 16 bits in every step.

What it looks for
    Casts in the forward whose input is a float32 parameter, as autocast inserts them, and the casts
    of its gradient back to float32. A batch that arrives in float32 is not counted.

Why it costs time
    Each parameter moves six bytes in the forward and six in the backward, with two launches per
    parameter tensor: as many as there are products. The product then reads the cast copy again.

What to change
    Keep the weights in 16 bits. For inference call `model.to(torch.bfloat16)`. For training use a
    bfloat16 model with an optimizer that keeps float32 copies.

When it does not help
    With large batches, whose activations move more bytes than the weights. With an optimizer that
    has no float32 copies, where small updates are lost: check the loss.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase, Tensor
from boundby.step.batch_invariant import weights_of
from boundby.step.model import Edit, StepView

_HALF = ("bfloat16", "float16")
_FEWEST_ELEMENTS = 1_000  # smaller casts are not counted


def detect(step: StepView) -> Detection | None:
    coming, going = casts_of_weights(step)
    if not coming:
        return None
    inference = not any(record.phase == Phase.OPTIMIZER for record in step.op_records)
    return Detection(
        low=Edit.remove(coming),
        expected=Edit.remove(coming + going),
        high=Edit.remove(coming + going),
        where=step.lines(step.op_records[index] for index in coming)[:3],
        change="model = model.to(torch.bfloat16)"
        + ("" if inference else "  # and float32 copies in the optimizer"),
        assumes="16 bits are precise enough for the weights",
    )


def casts_of_weights(step: StepView) -> tuple[list[int], list[int]]:
    """Casts of parameters before their use, and of their gradients."""
    flow = step.flow
    if flow is None:
        return [], []
    weights = weights_of(step, flow)
    coming, shapes = [], set()
    going = []
    for index in flow.order:
        record = step.op_records[index]
        call = step.call(record)
        if not record.name.endswith("::copy_") or call is None or record.ns <= 0:
            continue
        tensors = call.tensors
        if len(tensors) < 2 or tensors[0].elements < _FEWEST_ELEMENTS:
            continue
        of_weight = any(value in weights for value in flow.reads[index])
        if record.phase == Phase.FORWARD and of_weight and _narrows(tensors[1], tensors[0]):
            coming.append(index)
            shapes.add(tensors[0].shape)
        elif record.phase == Phase.BACKWARD and _narrows(tensors[0], tensors[1]):
            going.append((index, tensors[0].shape))
    return coming, [index for index, shape in going if shape in shapes]


def _narrows(before: Tensor, after: Tensor) -> bool:
    return before.dtype == "float32" and after.dtype in _HALF


FAULT = Fault(
    id="repeated-casts",
    title="Weights cast in every step",
    kind="tuning",
    group="bandwidth",
    document=__doc__,
    detect=detect,
)
