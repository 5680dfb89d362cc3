"""A Python loop over samples is unrolled into the compiled program.

What it looks for
    Operators of equal shape that an XLA program contains many times at one line, which read the
    same array and do not depend on each other: a Python loop over samples, heads or models inside a
    jitted function.

Why it costs time
    Each iteration of the loop becomes separate operators. They are small, run one after the other
    and leave most of the device unused; one operator over all samples does the same work at once.
    The compile time of the program also grows with the number of iterations.

What to change
    `jax.vmap(body)(batch)` in place of the loop; `in_axes=(None, 0)` for weights that all share.

When it does not help
    Where each iteration is large enough to fill the device.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import units
from boundby.model.assumptions.jax_savings import BATCHED_SAMPLES_LEFT
from boundby.step.jax_programs import compile_ns
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord


def detect(step: StepView) -> Detection | None:
    loops = step.observation.repeated if step.observation is not None else []
    apart = [loop for loop in loops if not loop.depends]
    if not apart:
        return None
    loop = max(apart, key=lambda loop: loop.count)
    lines = {at for at, line in enumerate(step.timeline.sources) if line in loop.lines}
    records = step.op_records
    found = [index for index, record in enumerate(records) if record.source in lines]
    # Between small operators a CPU's executor takes time that no operator event covers.
    between = [index for index, record in enumerate(records) if record.call < 0]
    part = len(found) / max(1, len(records) - len(between))
    low, expected, high = (
        Edit.set_time(
            {index: _left_ns(records[index], left) for index in found}
            | {index: records[index].ns * (1 - part * (1 - left)) for index in between}
        )
        for left in BATCHED_SAMPLES_LEFT.high_to_low
    )
    compiled = compile_ns(step, loop.program)
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=[loop.line, *(line for line in loop.lines if line != loop.line)][:3],
        change="jax.vmap(body)(batch)  # instead of the loop",
        assumes="all iterations of the loop do the same",
        evidence=f"the program contains this line {loop.count} times, with no result passed on"
        + (f"; it took {units.time(compiled)} to compile" if compiled else ""),
    )


def _left_ns(record: OpRecord, left: float) -> float:
    return min(record.ns, max(record.floor_ns or 0.0, left * record.ns))


FAULT = Fault(
    id="jax-looped-samples",
    title="A Python loop over samples inside jax.jit",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    document=__doc__,
    detect=detect,
)
