"""The step's function takes very many arrays.

What it looks for
    A jitted function with hundreds of arrays among its arguments: deep trees of parameters and
    optimizer states.

Why it costs time
    Each call checks and passes every array: 2 to 9 microseconds each for argument and result. A
    step of a few milliseconds is then bound by its own call.

What to change
    Stack the parameters of equal layers and use `jax.lax.scan` over them. Keep the optimizer's
    state flat (`optax.flatten`). Take several steps in one call with `jax.lax.fori_loop`.

When it does not help
    When the device works longer than the call takes.

Measured on
    200 arrays in and out: 0.43 ms on a CPU, 1.7 ms beside an H200.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import units
from boundby.model.assumptions.jax_savings import FEW_LEAVES_SHARE
from boundby.model.estimate import Estimate
from boundby.step.jax_programs import facts_of, overhead_ns, own_calls_ns
from boundby.step.model import StepView

_MANY = 150  # arrays; fewer are not reported


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    if facts is None or (facts.leaves or 0) < _MANY:
        return None
    call_ns = own_calls_ns(step)
    most = min(call_ns, overhead_ns(step))
    return Detection.of_saving(
        Estimate(
            low=FEW_LEAVES_SHARE.low * most,
            expected=FEW_LEAVES_SHARE.value * most,
            high=FEW_LEAVES_SHARE.high * call_ns,
        ),
        where=[facts.function.source] if facts.function and facts.function.source else [],
        change="jax.lax.scan over stacked parameters of equal layers; optax.flatten(optimizer)",
        assumes="most of the call's time is spent on its arrays",
        evidence=f"{facts.leaves} arrays in each call, which takes the host {units.time(call_ns)}",
    )


FAULT = Fault(
    id="jax-many-leaves",
    title="A call with very many arrays",
    kind="tuning",
    group="overhead",
    frameworks=("jax",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
)
