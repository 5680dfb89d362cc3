"""Logits over a large vocabulary are written to memory several times.

What it looks for
    A log-softmax over 8192 classes or more, with the casts, copies, losses and fills around it that
    read or write a tensor of tokens x vocabulary.

Why it costs time
    The logits are the largest tensor of a language model and yield one number per token. In eager
    mode they are written by the product, cast to float32, normalised, indexed, filled with zeros,
    differentiated and cast back. Each is a pass over gigabytes, and several copies exist at once.

What to change
    Compile the loss together with the operators between it and the last product:
    `torch.compile(F.cross_entropy)(logits, targets)`. It reads the logits in the dtype of the
    product and keeps no float32 copy. A loss that takes hidden states and weights and computes
    logits and gradient for one chunk of tokens at a time goes further: use a library, or
    `F.linear_cross_entropy(..., options=torch.nn.LinearCrossEntropyOptions())` (PyTorch 2.13). It
    mainly saves memory.

When it does not help
    When the logits are needed for something else. With few tokens per step. When the host limits
    the step. On a CPU neither form was faster (2.6 ms eager, 2.9 ms compiled, over 128 x 10000), so
    it is not reported there.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import DTYPE_BYTES, Phase, Tensor, units
from boundby.model.assumptions.device import FUSED_LOSS_MEMORY_SHARE
from boundby.model.assumptions.savings import LOGIT_PASSES, LOSS_LAUNCHES_LEFT
from boundby.step.model import Edit, StepView

_SMALLEST_VOCABULARY = 8192  # smaller ones are not reported
_FEWEST_TOKENS = 64  # fewer are not reported
_WITHOUT_BACKWARD = 2 / 5  # two of the five passes


def detect(step: StepView) -> Detection | None:
    logits = _logits(step)
    if logits is None:
        return None
    vocabulary, tokens = logits.shape[-1], logits.elements // logits.shape[-1]
    logit_ops = [index for index in range(len(step.op_records)) if _touches(step, index, logits)]
    size = tokens * vocabulary * _product_bytes(step, logits)
    roof = step.machine.memory_roof(size)
    if roof is None:
        return None
    backward = any(step.op_records[index].phase == Phase.BACKWARD for index in logit_ops)
    memoised = (
        size
        / (roof.value * FUSED_LOSS_MEMORY_SHARE.value)
        * 1e9
        * (1.0 if backward else _WITHOUT_BACKWARD)
    )
    before = sum(step.op_records[index].ns for index in logit_ops)

    def left(passes: int) -> dict[int, float]:
        scale = min(1.0, passes * memoised / before) if before else 1.0
        return {index: step.op_records[index].ns * scale for index in logit_ops}

    def fused(passes: int, launches: float) -> Edit:
        # It is then one kernel each way, with nothing left to fuse.
        return Edit.set_time(left(passes), launch_share=launches) + Edit(
            unfusible=frozenset(logit_ops)
        )

    held = units.size(2 * logits.bytes)
    return Detection(
        low=fused(LOGIT_PASSES.high, 1.0),
        expected=fused(LOGIT_PASSES.value, LOSS_LAUNCHES_LEFT.value),
        high=fused(LOGIT_PASSES.low, LOSS_LAUNCHES_LEFT.value),
        where=step.lines(step.op_records[index] for index in logit_ops)[:2],
        change=f"loss = torch.compile(F.cross_entropy)(logits, targets)  # {held} less memory",
        assumes="the logits are used for nothing but the loss",
    )


def _logits(step: StepView) -> Tensor | None:
    """The largest input of a log-softmax over a vocabulary."""
    found = [
        call.tensors[0]
        for record in step.op_records
        if record.name.endswith("::_log_softmax")
        and (call := step.call(record)) is not None
        and call.tensors
    ]
    large = [
        tensor
        for tensor in found
        if tensor.shape
        and tensor.shape[-1] >= _SMALLEST_VOCABULARY
        and tensor.elements >= _FEWEST_TOKENS * tensor.shape[-1]
    ]
    return max(large, key=lambda tensor: tensor.elements, default=None)


def _touches(step: StepView, index: int, logits: Tensor) -> bool:
    """Whether an operation other than a product reads or writes tokens x vocabulary, or nearly all
    of it: shifted by one, the last token is missing.

    An operator of unknown cost may be a whole model, as a compiled function is."""
    record = step.op_records[index]
    call = step.call(record)
    if call is None or record.cost is None or record.phase == Phase.OPTIMIZER:
        return False
    if record.op_class == "contraction":
        return False
    return any(
        tensor.shape
        and tensor.shape[-1] == logits.shape[-1]
        and 0.5 * logits.elements <= tensor.elements <= 2 * logits.elements
        and tensor.elements // tensor.shape[-1] >= _FEWEST_TOKENS
        for tensor in call.tensors
    )


def _product_bytes(step: StepView, logits: Tensor) -> int:
    """Bytes per element in the dtype of the last product."""
    for record in step.op_records:
        call = step.call(record)
        if record.op_class == "contraction" and call is not None and call.tensors:
            shapes = [tensor.shape for tensor in call.tensors]
            if any(shape and shape[-1] == logits.shape[-1] for shape in shapes):
                return DTYPE_BYTES.get(call.tensors[0].dtype, 4)
    return DTYPE_BYTES.get(logits.dtype, 4)


FAULT = Fault(
    id="logits-materialised",
    title="Loss makes several passes over the logits",
    kind="tuning",
    group="bandwidth",
    devices=("cuda",),
    document=__doc__,
    detect=detect,
)
