"""Activations and matrix products are in float32 throughout the step.

What it looks for
    Contractions on float32 inputs, and the elementwise operators between them on float32 tensors.

Why it costs time
    In bfloat16 the matrix units reach twice the FLOP/s of tf32, and sixteen times what the vector
    units reach in float32. Every activation moves half the bytes.

What to change
    Run the forward and the loss inside `with torch.autocast("cuda", torch.bfloat16):`. Parameters
    and the optimizer stay in float32.

When it does not help
    When the host limits the step: autocast adds casts, and each is a launch. bfloat16 keeps seven
    bits of mantissa: check the loss.

Measured on
    BERT (12 layers) in float32 on an H200: 119 to 35.6 ms per step; predicted 37.2 ms. A small GPT
    on two CPU cores: 153 to 126 ms.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.fixes import precision
from boundby.model import DTYPE_BYTES, Phase, Tensor
from boundby.model.assumptions.detection import FASTER_UNIT
from boundby.model.assumptions.savings import (
    ACTIVATION_CASTS,
    AUTOCAST_PRODUCTS_GAIN,
    AUTOCAST_TRAFFIC_GAIN,
)
from boundby.step.inference import is_inference
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord
from boundby.step.op_variants import in_dtype, timed_ratio

_FLOAT32 = ("matmul.float32", "matmul.tf32")
_BFLOAT16 = "matmul.bfloat16"
_CAST = in_dtype("bfloat16")
_ATTENTION, _HEADS_APART = "_scaled_dot_product_", 4
# Autocast keeps these in float32: they save nothing.
_KEPT = ("softmax", "norm", "loss", "sum", "exp", "log", "pow")
# Bytes per parameter to cast it before its use and its gradient afterwards.
_CASTS = 2 * (4 + 2)
# Gains of products and of memory traffic: worst, expected, best.
_CASES = tuple(
    zip(AUTOCAST_PRODUCTS_GAIN.low_to_high, AUTOCAST_TRAFFIC_GAIN.low_to_high, strict=True)
)


def detect(step: StepView) -> Detection | None:
    machine = step.machine
    new = machine.rate(_BFLOAT16)
    products = [
        index
        for index, record in enumerate(step.op_records)
        if record.op_class == "contraction"
        and record.cost is not None
        and any(unit in record.cost.flops for unit in _FLOAT32)
        and record.bound in ("compute", "memory")
        and not step.is_for_data(record)
    ]
    if not products or not new or new < FASTER_UNIT.value * (machine.rate(_FLOAT32[0]) or new):
        return None
    changes = [_cast(step, products, *case) for case in _CASES]
    return Detection(
        low=changes[0],
        expected=changes[1],
        high=changes[2],
        where=step.lines(step.op_records[index] for index in products)[:3],
        change=f'with torch.autocast("{step.device}", torch.bfloat16):\n    '
        + ("outputs = model(batch)" if is_inference(step) else "loss = model(batch)"),
        assumes="seven bits of mantissa in products and activations are enough",
    )


def _cast(step: StepView, products: list[int], near: float, halved: float) -> Edit:
    op_ns: dict[int, float] = {}
    for index in products:
        record = step.op_records[index]
        ratio = timed_ratio(step, record, _of_attention if _ATTENTION in record.name else _CAST)
        if ratio is None:
            ratio = min(near, _from_roofs(step, index))
        op_ns[index] = record.ns * ratio / near
    for index, record in enumerate(step.op_records):
        if (
            index not in op_ns
            and record.op_class in ("elementwise", "movement")
            and record.phase != Phase.OPTIMIZER
            and record.bound == "memory"
            # Autocast is around the model, not around the loader.
            and not step.is_for_data(record)
            and not any(part in record.name for part in _KEPT)
        ):
            op_ns[index] = record.ns - halved / 2 * _moving(step, record)
    casts = _cast_ns(step, products)
    first = products[0]
    op_ns[first] += casts
    return Edit(op_ns=op_ns, product_precision="bfloat16")


def _of_attention(tensor: Tensor) -> Tensor:
    """Sums over attention scores, one for each row of each head, stay in float32."""
    return _CAST(tensor) if len(tensor.shape) == _HEADS_APART else tensor


def _moving(step: StepView, record: OpRecord) -> float:
    """The part of a pointwise kernel's time that moves its bytes, and that shrinks with them.

    On a CPU that is at most the memory time: the rest is arithmetic, which takes as long or longer
    in 16 bits.
    """
    return min(record.ns, record.floor_ns or 0.0) if step.device == "cpu" else record.ns


def _from_roofs(step: StepView, index: int) -> float:
    """The time by the roofs, without a benchmark: as far above the new roofline as above the old
    one."""
    cost = step.op_records[index].cost
    machine = step.machine
    assert cost is not None
    unit = next(unit for unit in _FLOAT32 if unit in cost.flops)
    old, new = machine.rate(unit), machine.rate(_BFLOAT16)
    compute = old / new if old and new else 1.0
    return max(compute, 0.5) if step.op_records[index].bound == "memory" else compute


def _cast_ns(step: StepView, products: list[int]) -> float:
    """The casts that autocast adds: of every parameter and gradient, and of some activations."""
    memory = step.machine.rate("memory.dram")
    if not memory:
        return 0.0
    weights = activations = 0.0
    for index in products:
        record = step.op_records[index]
        call = step.call(record)
        if call is None or record.phase == Phase.BACKWARD:
            continue
        sizes = sorted(t.elements for t in call.tensors if isinstance(t, Tensor) and t.shape)
        if len(sizes) > 1:
            weights += sizes[0]
            activations += sizes[-1]
    item = DTYPE_BYTES["float32"]
    moved = weights * _CASTS + activations * ACTIVATION_CASTS.value * item
    return moved / memory * 1e9


FAULT = Fault(
    id="float32-activations",
    title="Activations in float32",
    kind="tuning",
    group="bandwidth",
    document=__doc__,
    detect=detect,
    fixes=(precision.AUTOCAST,),
    excludes=("float32-products",),
)
