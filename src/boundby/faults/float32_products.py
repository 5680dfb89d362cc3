"""Matrix products in float32 do not use the matrix units.

What it looks for
    Contractions on float32 inputs that run on the vector units because tf32 is off, either for
    matrix products or for the convolutions and recurrent layers of cuDNN, which have a switch of
    their own.

Why it costs time
    On an H200 the matrix units reach eight times the FLOP/s in tf32, and sixteen times in bfloat16,
    that the vector units reach in float32.

What to change
    Call `torch.set_float32_matmul_precision("high")` once for tf32; on a CPU with bfloat16 units
    use "medium". If the script has switched tf32 off for cuDNN, set
    `torch.backends.cudnn.allow_tf32 = True`. Alternatively use `torch.autocast` with bfloat16,
    which also halves the bytes of the activations: this is the fault `float32-activations`, and it
    replaces this one.

When it does not help
    When the products are small or memory-bound, or the host limits the step. On a CPU the setting
    does not affect convolutions and LSTMs, which run in oneDNN: with PyTorch 2.13 an LSTM gives
    bit-identical results under "highest" and "medium", whatever
    `torch.backends.mkldnn.rnn.fp32_precision` is. GRUs and plain RNNs are built from products and
    are affected. tf32 keeps ten bits of mantissa and bfloat16 seven: check the loss.

Measured on
    BERT (12 layers) in float32 on an H200: 119 to 44.0 ms per step with tf32; predicted 43.4 ms.
"""

from __future__ import annotations

from collections.abc import Iterable

from boundby.faults.fault import Detection, Fault
from boundby.fixes import precision
from boundby.model import Cost
from boundby.model.assumptions.detection import FASTER_UNIT
from boundby.model.assumptions.device import SAME_ROOF_SHARE
from boundby.step.model import Edit, StepView
from boundby.step.op_record import is_convolution, is_recurrent
from boundby.step.op_variants import as_it_is, timed_ratio

_FROM = "matmul.float32"
_TARGETS = {"cuda": "matmul.tf32", "cpu": "matmul.bfloat16"}
_MANTISSA_BITS = {"matmul.tf32": 10, "matmul.bfloat16": 7}


def detect(step: StepView) -> Detection | None:
    old, new = step.machine.rate(_FROM), step.machine.rate(_target(step))
    if not old or not new or new < FASTER_UNIT.value * old:
        return None
    products = {
        index: record.cost
        for index, record in enumerate(step.op_records)
        if record.bound == "compute"
        and record.cost is not None
        and _FROM in record.cost.flops
        # The setting for products on a CPU does not apply to oneDNN's recurrent layers.
        and (step.device == "cuda" or not _is_layer(record.name))
    }
    if not products:
        return None
    return Detection(
        low=_faster(step, products, old, new * SAME_ROOF_SHARE.low),
        expected=_faster(step, products, old, new * SAME_ROOF_SHARE.value),
        high=_faster(step, products, old, new * SAME_ROOF_SHARE.high),
        where=step.lines(step.op_records[index] for index in products)[:3],
        change=_change(step, products),
        assumes=f"{_MANTISSA_BITS[_target(step)]} bits of mantissa in products are enough",
    )


def _change(step: StepView, products: Iterable[int]) -> str:
    """A line for each kind of product in the finding."""
    if step.device == "cpu":
        return 'torch.set_float32_matmul_precision("medium")'
    layers = {_is_layer(step.op_records[index].name) for index in products}
    lines = {
        False: 'torch.set_float32_matmul_precision("high")',
        True: "torch.backends.cudnn.allow_tf32 = True",
    }
    return "\n".join(lines[kind] for kind in sorted(layers))


def _is_layer(operator: str) -> bool:
    """Whether it is a layer that cuDNN or oneDNN runs as one, with its own precision setting."""
    return is_convolution(operator) or is_recurrent(operator)


def _faster(step: StepView, products: dict[int, Cost], old: float, new: float) -> Edit:
    """Benchmarked on the matrix units; otherwise as far above its new roofline as above the old
    one."""
    op_ns = {}
    for index, cost in products.items():
        record = step.op_records[index]
        ratio = timed_ratio(step, record, as_it_is, loose=True)
        if ratio is not None:
            expected = step.machine.rate(_target(step)) or new
            # Not every kernel gains: a CPU's fused attention takes longer with reduced precision.
            op_ns[index] = record.ns * ratio * SAME_ROOF_SHARE.value * expected / new
            continue
        memory = step.machine.memory_ns(cost) or 0.0
        op_ns[index] = min(record.ns, max(record.ns * old / new, memory))
    return Edit(op_ns=op_ns, product_precision="loose")


def _target(step: StepView) -> str:
    return _TARGETS[step.device]


FAULT = Fault(
    id="float32-products",
    title="Matrix products in float32",
    kind="tuning",
    group="compute",
    document=__doc__,
    detect=detect,
    fixes=(
        precision.TF32,
        precision.BFLOAT16_PRODUCTS,
        precision.AUTOCAST,
    ),
    excludes=("float32-activations",),
)
