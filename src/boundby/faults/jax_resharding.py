"""XLA moves arrays from one sharding to another between the operators of the step.

What it looks for
    All-to-all and permuting collectives that XLA's partitioner put into a program: neighbouring
    operators want the same array divided along different axes. Those that the script asks for, by
    `jax.lax.all_to_all` or a sharding constraint, are not counted, and neither are gathered
    parameters and summed gradients, which data parallelism needs.

Why it costs time
    Each of them sends the array over the links between the devices and waits for the slowest one.
    No arithmetic needs it.

What to change
    Give parameters and batches the shardings that the step's operators use, before the loop:
    `jax.device_put(params, NamedSharding(mesh, P()))` for parameters that every device needs whole.
    Inside the step, `jax.lax.with_sharding_constraint` keeps activations divided by the batch.
    `in_shardings` and `out_shardings` of `jax.jit` keep the state as it is from step to step.

When it does not help
    When the layout saves memory that the model needs, as in expert or sequence parallelism.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import units
from boundby.model.assumptions.jax_savings import RESHARDING_LEFT
from boundby.step.model import StepView

_MOST_LINES = 3  # display limit


def detect(step: StepView) -> Detection | None:
    found = [
        index
        for index, record in enumerate(step.op_records)
        if (call := step.call(record)) is not None and call.hlo is not None and call.hlo.reshards
    ]
    if not found:
        return None
    low, expected, high = (step.scaled(found, left) for left in RESHARDING_LEFT.high_to_low)
    spent = sum(step.op_records[index].ns for index in found)
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=step.lines(step.op_records[index] for index in found)[:_MOST_LINES],
        change="params = jax.device_put(params, NamedSharding(mesh, P()))  # before the loop, as "
        "the operators use them; or jax.lax.with_sharding_constraint",
        assumes="the operators can use arrays as they are divided",
        evidence=f"XLA put {len(found)} collectives into the step that change how arrays are "
        f"divided, for {units.time(spent)}",
    )


FAULT = Fault(
    id="jax-resharding",
    title="Arrays change their sharding inside the step",
    kind="tuning",
    group="bandwidth",
    frameworks=("jax",),
    document=__doc__,
    detect=detect,
)
