"""A library's wrapper around jax.jit takes the state apart in Python at every call.

What it looks for
    A step's function that a library gave to `jax.jit` (`nnx.jit`, `eqx.filter_jit`), and the host
    time at the line that calls it, outside of the compiled function.

Why it costs time
    The wrapper walks through all modules of the model and the optimizer before each call, sorts out
    their arrays, and puts the results back afterwards. That is Python, and grows with the number of
    modules and arrays: milliseconds where the compiled call itself takes less than one.

What to change
    Take the state apart once, before the loop. nnx: `step = nnx.cached_partial(step, model,
    optimizer)`, or `graphdef, state = nnx.split((model, optimizer))` and a plain `jax.jit` that
    merges inside. equinox: `arrays, static = eqx.partition(model, eqx.is_array)` and a plain
    `jax.jit` that combines inside.

When it does not help
    When the device works longer than the wrapper takes and the host does not wait for it.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import HostKind, Ints, Timeline, units
from boundby.model.assumptions.jax_savings import WRAPPED_CALL_SHARE
from boundby.step.jax_programs import (
    facts_of,
    in_clean_step,
    of_clean_step,
    overhead_ns,
    program_calls,
)
from boundby.step.model import StepView
from boundby.step.nesting import nearest

_CHANGES = {
    "flax": "step = nnx.cached_partial({name}, model, optimizer)  # before the loop; or nnx.split "
    "once, and jax.jit of a function that merges",
    "equinox": "arrays, static = eqx.partition(model, eqx.is_array)  # before the loop; jax.jit of "
    "a function of the arrays, with eqx.combine inside",
}
_OTHERS = "jax.jit({name})  # of a function of arrays alone, taken out of their objects once"
_MOST_LINES = 3  # display limit


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    function = facts.function if facts is not None else None
    if function is None or function.library is None:
        return None
    timeline = step.timeline
    lines, around_ns = _around(timeline, program_calls(timeline, {function.name}))
    spent = in_clean_step(step, around_ns)
    if spent <= 0:
        return None
    most = min(spent, overhead_ns(step))
    change = _CHANGES.get(function.library, _OTHERS).format(name=function.name)
    return Detection.of_saving(
        of_clean_step(
            step,
            low=WRAPPED_CALL_SHARE.low * most,
            expected=WRAPPED_CALL_SHARE.value * most,
            high=WRAPPED_CALL_SHARE.high * spent,
        ),
        where=lines[:_MOST_LINES],
        change=change,
        assumes="that time is the wrapper's, and no other code at this line",
        evidence=f"the line that calls {function.name} takes {units.time(spent)} of host time "
        f"outside the compiled function, in {function.library}",
    )


def _around(timeline: Timeline, calls: Ints) -> tuple[list[str], float]:
    """The lines that make these calls, and their time outside of any compiled function."""
    host = timeline.host
    around = nearest(host.parent, host.kind == HostKind.PYTHON)
    # A wrapper's time is divided where the profile's line changes; a line counts as a whole.
    sources = np.unique(host.source[calls[around[calls] >= 0]])
    pieces = (host.kind == HostKind.PYTHON) & np.isin(host.source, sources)
    ops = np.flatnonzero(host.kind == HostKind.OP)
    inside = ops[(around[ops] >= 0) & pieces[around[ops]]]
    inside = inside[~np.isin(host.parent[inside], inside)]
    ns = float(host.duration_ns[pieces].sum() - host.duration_ns[inside].sum())
    return [timeline.sources[at] for at in sources if at >= 0], ns


FAULT = Fault(
    id="jax-wrapped-step",
    title="A wrapper of jax.jit splits the state in every call",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
)
