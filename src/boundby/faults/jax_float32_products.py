"""Matrix products in float32 where matrix units would serve.

What it looks for
    Products and convolutions of an XLA program with float32 operands.

Why it costs time
    Matrix units compute 16-bit products several times as fast as float32 ones. On a GPU jax lets
    float32 products run in tf32, at half of that rate; with `jax_default_matmul_precision` at
    "highest" they do not use the matrix units at all.

What to change
    Compute in bfloat16: cast parameters and inputs in the forward pass (`dtype=jnp.bfloat16` in
    flax), and keep the parameters themselves in float32. Where "highest" is set, lower it.

When it does not help
    Where the products wait for memory or for the host. On a CPU, where it is not looked for: XLA
    computes products in bfloat16 no faster there.

Measured on
    A GPT on an H200: 79.1 ms with "highest", 21.9 ms by default, 11.7 ms in bfloat16. One core of a
    Xeon whose matrix units torch uses, jax 0.10: 512x384x96 takes 274 us in float32, 469 us in
    bfloat16.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.fixes import jax_step
from boundby.model import Cost
from boundby.model.assumptions.detection import FASTER_UNIT
from boundby.model.assumptions.device import SAME_ROOF_SHARE_XLA
from boundby.step.jax_programs import facts_of
from boundby.step.model import Edit, StepView

_SLOW = ("matmul.float32", "matmul.tf32")
_FAST = "matmul.bfloat16"
_EXACT = ("highest", "float32", "F32_F32_F32")


def detect(step: StepView) -> Detection | None:
    if step.timeline.device_kind == "cpu":
        return None
    new = step.machine.rate(_FAST)
    found: dict[int, tuple[Cost, float]] = {}
    for index, record in enumerate(step.op_records):
        if record.cost is None or record.bound != "compute":
            continue
        unit = next((unit for unit in _SLOW if unit in record.cost.flops), None)
        old = step.machine.rate(unit) if unit is not None else None
        if old and new and new > FASTER_UNIT.value * old:
            found[index] = (record.cost, old)
    if not found or not new:
        return None
    facts = facts_of(step)
    is_exact = facts is not None and facts.matmul_precision in _EXACT
    return Detection(
        low=_faster(step, found, SAME_ROOF_SHARE_XLA.low * new),
        expected=_faster(step, found, SAME_ROOF_SHARE_XLA.value * new),
        high=_faster(step, found, SAME_ROOF_SHARE_XLA.high * new),
        where=step.lines(step.op_records[index] for index in found)[:3],
        change='jax.config.update("jax_default_matmul_precision", "default")'
        if is_exact
        else "compute in bfloat16: x.astype(jnp.bfloat16), or dtype=jnp.bfloat16 in flax",
        assumes="products with 8 bits of mantissa are precise enough",
    )


def _faster(step: StepView, found: dict[int, tuple[Cost, float]], new: float) -> Edit:
    op_ns = {}
    for index, (cost, old) in found.items():
        record = step.op_records[index]
        # Half of the bytes with 16 bits.
        memory = (step.machine.memory_ns(cost) or 0.0) / 2
        op_ns[index] = min(record.ns, max(record.ns * old / new, memory))
    return Edit(op_ns=op_ns)


FAULT = Fault(
    id="jax-float32-products",
    title="Matrix products in float32",
    kind="tuning",
    group="compute",
    frameworks=("jax",),
    document=__doc__,
    fixes=(jax_step.BFLOAT16_PRODUCTS, jax_step.DEFAULT_PRODUCTS),
    detect=detect,
)
