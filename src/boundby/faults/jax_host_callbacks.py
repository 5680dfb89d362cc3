"""The compiled step calls back into Python.

What it looks for
    Custom calls of an XLA program that run Python on the host: `jax.debug.print`,
    `jax.debug.callback`, `io_callback`, `pure_callback`.

Why it costs time
    The program stops at each of them: its arguments are copied to the host, Python runs under its
    global lock, and only then the next operator starts. A callback takes hundreds of microseconds
    where an operator takes one. Python itself dispatches such a program, not JAX's fast path.

What to change
    Return the values from the step, keep them in a list, and print or log them once every hundred
    steps. Keep `jax.debug.print` for debugging, or put it under `jax.lax.cond`.

When it does not help
    When a step takes much longer than its callbacks.

Measured on
    A training step with 8 callbacks on a CPU spent 80% of its time in them. A small training step
    on one core of a Xeon: 372 us, with one `jax.debug.print` 1372 us.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import units
from boundby.model.assumptions.jax_savings import CALLBACK_DISPATCH_SHARE, CALLBACK_LEFT
from boundby.step.jax_programs import in_clean_step, own_calls_ns
from boundby.step.model import Edit, StepView


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
    spent = sum(step.op_records[index].ns for index in found)
    calls_ns = in_clean_step(step, own_calls_ns(step))
    dispatch = CALLBACK_DISPATCH_SHARE
    low, expected, high = (
        step.scaled(found, left)
        + Edit.save_step(_of_host(step, spent * (1 - left) + share * calls_ns))
        for left, share in zip(
            CALLBACK_LEFT.high_to_low, (dispatch.low, dispatch.value, dispatch.high), strict=True
        )
    )
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=step.lines(step.op_records[index] for index in found)[:3],
        change="return the values from the step; print or log them once every hundred steps",
        assumes="nothing in the step needs what the callback returns",
        evidence=f"{len(found)} callbacks in a step, {units.time(spent / len(found))} each",
    )


def _of_host(step: StepView, ns: float) -> float:
    """What of this time the host's Python has to wait for: a callback holds its global lock."""
    return ns * step.stall_sensitivity(ns)


FAULT = Fault(
    id="jax-host-callbacks",
    title="Python callbacks inside the compiled step",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    document=__doc__,
    detect=detect,
)
