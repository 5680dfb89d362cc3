"""A debugging setting of JAX is on.

What it looks for
    `jax_debug_nans`, from jax's own configuration during the measured steps.

Why it costs time
    With `jax_debug_nans` the results of every call are copied to the host and searched for NaN, so
    the host waits for the device in each call, and donated memory is kept.

What to change
    `jax.config.update("jax_debug_nans", False)`. Turn it on again to look for a NaN that was seen.

When it does not help
    It always helps; by how much depends on the size of the results.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model.assumptions.jax_savings import DEBUG_CHECKS_SHARE
from boundby.model.estimate import Estimate
from boundby.step.jax_programs import facts_of, overhead_ns
from boundby.step.model import StepView


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    if facts is None or not facts.debug_nans:
        return None
    most = overhead_ns(step)
    return Detection.of_saving(
        Estimate(
            low=DEBUG_CHECKS_SHARE.low * most, expected=DEBUG_CHECKS_SHARE.value * most, high=most
        ),
        where=[],
        change='jax.config.update("jax_debug_nans", False)',
        assumes="most of the host's waiting is for these checks",
        evidence="jax_debug_nans is on",
    )


FAULT = Fault(
    id="jax-debug-checks",
    title="NaN checks in every call",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
)
