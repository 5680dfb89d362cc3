"""Dropout on a CPU draws its mask one random number at a time.

What it looks for
    On a CPU, `bernoulli_` in the forward of a training step: one thread draws a random number of 32
    bits or more for every element of the input.

Why it costs time
    The random number generator produces one word at a time, which is much slower than memory. The
    comparison with a probability needs only 16 bits, and a 64-bit word contains four such values.

What to change
    Use your own dropout for training on a CPU:
    `words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-2**63, None)`,
    `bits = words.view(torch.int16)[:x.numel()].view(x.shape)`,
    `x = x * (bits >= int(p * 65536) - 32768).to(x.dtype).mul_(1 / (1 - p))`. This rounds the
    probability to a multiple of 1/65536. Also check whether all of the dropout is needed.

When it does not help
    On a GPU, where every element has a thread that draws. In compiled code, which generates its own
    random numbers.

Measured on
    A small GPT on two cores of a Xeon: 209 to 161 ms per step, 1.29x (1.12 to 1.52); predicted
    1.28x.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.fixes import dropout
from boundby.fixes.dropout import SMALLEST_WORD
from boundby.hardware.op_benchmark import OpBenchmark
from boundby.model import Phase, Tensor
from boundby.model.assumptions.savings import SHORT_MASKS_LEFT
from boundby.step.model import Edit, StepView

_DRAWS = "aten::bernoulli_"
# A smaller share of the step is not worth a custom dropout.
_WORTHWHILE = 0.02
# Written and read by the comparison, and by the cast to float32.
_MORE_BYTES = 8


def detect(step: StepView) -> Detection | None:
    draws = [
        index
        for index, record in enumerate(step.op_records)
        if record.name == _DRAWS and record.phase != Phase.OPTIMIZER and record.ns > 0
    ]
    drawn = sum(step.op_records[index].ns for index in draws)
    if drawn < _WORTHWHILE * step.wall_ns:
        return None

    def kept(left: float | None) -> Edit:
        times = {index: _left_ns(step, index, left) for index in draws}
        return Edit.set_time(times)

    return Detection(
        low=kept(SHORT_MASKS_LEFT.high),
        expected=kept(None),
        high=kept(SHORT_MASKS_LEFT.low),
        where=step.lines(step.op_records[index] for index in draws)[:3],
        change="dropout with masks of 16 random bits: boundby explain slow-dropout has the code",
        assumes="other masks of the same probability are acceptable",
    )


def _left_ns(step: StepView, index: int, left: float | None) -> float:
    """The remaining time to draw a mask: a share of the present one, or the time to draw the
    words."""
    record = step.op_records[index]
    call = step.call(record)
    if left is not None or call is None or not call.tensors:
        return record.ns * (left or SHORT_MASKS_LEFT.value)
    count = call.tensors[0].elements
    words = Tensor(shape=(max(1, count // 4),), dtype="int64", strides=(1,))
    drawing = step.timings.ns(OpBenchmark(name="aten::random_", args=(words, SMALLEST_WORD, None)))
    if drawing is None:
        return record.ns * SHORT_MASKS_LEFT.value
    asking = 2 * (step.machine.overheads.eager_op_ns or 0.0)
    return min(record.ns, drawing + asking + (step.machine.copy_ns(_MORE_BYTES * count) or 0.0))


FAULT = Fault(
    id="slow-dropout",
    title="Slow dropout",
    kind="tuning",
    group="bandwidth",
    devices=("cpu",),
    document=__doc__,
    detect=detect,
    fixes=(dropout.SHORT_MASKS,),
    excludes=("unfused-operators", "far-from-roof"),  # compiled code draws its own masks
)
