"""Matrix products in 16 bits are slower on this device than in float32.

What it looks for
    Contractions in bfloat16 or float16 on a device that was measured to be faster in float32: a CPU
    without matrix units, or an old GPU.

Why it costs time
    Without 16-bit units the inputs are converted to float32, multiplied there and rounded back. A
    Xeon without matrix units reached 52 GFLOP/s in bfloat16, 22 in float16 and 265 in float32. The
    casts of autocast are added to this.

What to change
    Pass `enabled=False` to `torch.autocast` on such a device, or do not call `model.bfloat16()`.
    This often occurs when code meant for a GPU is tested on a laptop. An old GPU may be faster in
    float16 than in float32: `boundby machine` shows both.

When it does not help
    When the products read large weights for few rows, so that memory traffic and not arithmetic
    sets their time: float32 doubles the bytes. float32 also needs twice the memory.

Measured on
    BERT-base with one sample on two cores of a Xeon without matrix units: 2.47 to 1.11 s per step,
    2.23x (2.11 to 2.37). Predicted in an earlier run: 2.33 to 1.11 s.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.faults.repeated_casts import casts_of_weights
from boundby.fixes import precision
from boundby.model.assumptions.detection import FASTER_UNIT
from boundby.model.assumptions.savings import WIDE_PRODUCT_RATIO
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord
from boundby.step.op_variants import in_dtype, timed_ratio

_FLOAT32 = "matmul.float32"
_SIXTEEN_BITS = ("matmul.bfloat16", "matmul.float16")
_HALF = ("bfloat16", "float16")
_WIDE = in_dtype("float32")
# How much longer than the roofline products take, and whether casts are removed too: worst,
# expected, best.
_CASES = tuple(zip(WIDE_PRODUCT_RATIO.high_to_low, (False, True, True), strict=True))


def detect(step: StepView) -> Detection | None:
    rate = step.machine.rate
    wide = rate(_FLOAT32) or 0.0
    slow = {unit for unit in _SIXTEEN_BITS if wide > FASTER_UNIT.value * (rate(unit) or wide)}
    products = {
        index
        for index, record in enumerate(step.op_records)
        if record.op_class == "contraction"
        and record.cost is not None
        and not slow.isdisjoint(record.cost.flops)
        and record.ns > 0
    }
    if not products:
        return None
    casts = [index for index, record in enumerate(step.op_records) if _is_cast(step, record)]
    worst, expected, best = (
        _widened(step, products, near, casts if gone else []) for near, gone in _CASES
    )
    by_autocast = bool(casts if step.flow is None else casts_of_weights(step)[0])
    return Detection(
        low=worst,
        expected=expected,
        high=best,
        where=step.lines(step.op_records[index] for index in sorted(products))[:3],
        change=f'with torch.autocast("{step.device}", enabled=False):'
        if by_autocast
        else "model = model.float()",
        assumes="32-bit activations fit into memory",
    )


def _widened(step: StepView, products: set[int], near: float, casts: list[int]) -> Edit:
    gone = Edit.remove(casts)
    op_ns = dict(gone.op_ns)
    for index, record in enumerate(step.op_records):
        is_product = index in products
        if index in op_ns or not (is_product or _is_between(step, record)):
            continue
        ratio = timed_ratio(step, record, _WIDE, loose=False)
        if ratio is None:
            ratio = _from_roofs(step, record)
        op_ns[index] = record.ns * ratio * (near if is_product else 1.0)
    return gone + Edit.set_time(op_ns)


def _from_roofs(step: StepView, record: OpRecord) -> float:
    """The time by the roofs, without a benchmark: as far above the new roofline, with twice the
    bytes, as above the old one."""
    flops = record.cost.flops if record.cost is not None else {}
    unit = next((unit for unit in _SIXTEEN_BITS if unit in flops), None)
    if record.bound == "memory" or unit is None:
        return 2.0 if record.bound == "memory" else 1.0
    old, new = step.machine.rate(unit), step.machine.rate(_FLOAT32)
    return old / new if old and new else 1.0


def _is_cast(step: StepView, record: OpRecord) -> bool:
    """Whether it casts between float32 and 16 bits, as autocast does."""
    call = step.call(record)
    if call is None or not record.name.endswith("::copy_") or len(call.tensors) < 2:
        return False
    kinds = {tensor.dtype for tensor in call.tensors[:2]}
    return "float32" in kinds and not kinds.isdisjoint(_HALF)


def _is_between(step: StepView, record: OpRecord) -> bool:
    """Operations that are no products and use 16 bits; the optimizer too, if the weights do."""
    call = step.call(record)
    return (
        call is not None
        and record.op_class in ("elementwise", "normalization", "movement")
        and any(tensor.dtype in _HALF for tensor in call.tensors)
    )


FAULT = Fault(
    id="slow-sixteen-bits",
    title="16-bit products are slow on this machine",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
    fixes=(precision.NO_AUTOCAST,),
    excludes=("float32-products", "float32-activations", "repeated-casts"),
)
