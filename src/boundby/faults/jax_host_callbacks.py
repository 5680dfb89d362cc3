"""The compiled step calls back into Python.

What it looks for
    Custom calls of an XLA program that run Python on the host: `jax.debug.print`,
    `jax.debug.callback`, `io_callback`, `pure_callback`.

Why it costs time
    The program stops at each of them: its arguments are copied to the host, Python runs under its
    global lock, and only then the next operator starts. A callback takes hundreds of microseconds
    where an operator takes one.

What to change
    Return the values from the step, keep them in a list, and print or log them once every hundred
    steps. Keep `jax.debug.print` for debugging, or put it under `jax.lax.cond`.

When it does not help
    When a step takes much longer than its callbacks.

Measured on
    A training step with 8 callbacks on a CPU spent 80% of its time in them.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import units
from boundby.model.assumptions.jax_savings import CALLBACK_LEFT
from boundby.step.model import StepView


def detect(step: StepView) -> Detection | None:
    found = [
        index
        for index, record in enumerate(step.op_records)
        if (call := step.call(record)) is not None
        and call.hlo is not None
        and call.hlo.calls_python
    ]
    if not found:
        return None
    low, expected, high = (step.scaled(found, left) for left in CALLBACK_LEFT.high_to_low)
    spent = sum(step.op_records[index].ns for index in found)
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=step.lines(step.op_records[index] for index in found)[:3],
        change="return the values from the step; print or log them once every hundred steps",
        assumes="nothing in the step needs what the callback returns",
        evidence=f"{len(found)} callbacks in a step, {units.time(spent / len(found))} each",
    )


FAULT = Fault(
    id="jax-host-callbacks",
    title="Python callbacks inside the compiled step",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    document=__doc__,
    detect=detect,
)
