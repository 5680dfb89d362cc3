"""The same numpy arrays go to the device in every step.

What it looks for
    Arguments of the step's function that are numpy arrays, and the same ones in each call: a table,
    a dataset, a mask made once.

Why it costs time
    A compiled function takes arrays of the device. One of numpy is converted (float64 to float32)
    and copied in each call, into new memory, while the host or the operators wait.

What to change
    `table = jax.device_put(table)` once, before the loop.

When it does not help
    With small arrays. A batch is new in each step and has to be copied anyway.

Measured on
    Not yet measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.model import HostKind, units
from boundby.model.assumptions.jax_savings import TRANSFERS_SHARE
from boundby.step.jax_programs import (
    facts_of,
    fresh_pages_ns,
    lines_of_calls,
    of_clean_step,
)
from boundby.step.model import StepView

# Smaller arguments are copied within microseconds.
_LEAST_BYTES = 64 * 1024
# The names in JAX's runtime for the copy of an argument: of a small and of a large one.
_COPIES = ("DevicePut", "H2D Dispatch")


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    given = facts.host_arrays if facts is not None else []
    again = [one for one in given if one.is_same]
    repeated = sum(one.bytes for one in again)
    if facts is None or repeated < _LEAST_BYTES:
        return None
    timeline = step.timeline
    host = timeline.host
    copies = np.array([name in _COPIES for name in timeline.names] or [False])[host.name]
    copies &= host.kind == HostKind.RUNTIME
    clean = min(1.0, step.wall_ns / max(1, timeline.wall_ns))
    spent = clean * float(host.duration_ns[copies].sum())
    part = spent * repeated / sum(one.bytes for one in given)
    if timeline.device_kind == "cpu":
        # Copies inside of the call have no event; they may need new memory in each step.
        copied = sum(one.copy_ns or 0.0 for one in again)
        part = max(part, copied, fresh_pages_ns(step, repeated))
    if part <= 0:
        return None
    names = ", ".join(one.argument for one in again[:3])
    sources, ns = np.unique(host.source[copies], return_counts=True)
    lines = [timeline.sources[at] for at in sources[np.argsort(-ns)] if at >= 0]
    if facts.function is not None:
        # Large arrays are copied on another thread.
        lines = [*lines_of_calls(step, facts.function.name), *lines]
    return Detection.of_saving(
        of_clean_step(
            step,
            low=TRANSFERS_SHARE.low * part,
            expected=TRANSFERS_SHARE.value * part,
            high=max(part, spent),
        ),
        where=list(dict.fromkeys(lines))[:3],
        change=f"{again[0].argument} = jax.device_put({again[0].argument})  # before the loop",
        assumes="the script does not change the array between steps",
        evidence=f"{units.size(repeated)} are copied in each step ({names}), the same ones",
    )


FAULT = Fault(
    id="jax-implicit-transfers",
    title="The same numpy arrays are copied in every step",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    stage=Stage.HOST,
    document=__doc__,
    detect=detect,
)
