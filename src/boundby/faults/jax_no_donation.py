"""The step returns new state and keeps the memory of the old one.

What it looks for
    A jitted function whose results are its arguments in the next step (parameters, optimizer
    states, caches) and that does not donate them.

Why it costs time
    Results get new memory in each step, while the old state still occupies its own: twice the
    memory of the state. What is changed in place, as a cache of keys and values is by
    `dynamic_update_slice`, is copied as a whole first. On a GPU the addresses change, so a captured
    command buffer is rewritten before each execution; a host that waits for each step pays for
    that.

What to change
    `jax.jit(step, donate_argnums=(0, 1))` with the positions of the state. The old arrays must not
    be used afterwards: jax raises an error if they are.

When it does not help
    It saves little time where nothing is copied and the host runs ahead of the device. It always
    saves memory.

Measured on
    A GPT on an H200 whose loss is fetched in every step: 14.5 to 12.9 ms, 1.12x (1.01 to 1.25),
    predicted 1.16x (1.00 to 1.17). Where no step is waited for: 11.9 to 11.7 ms. Memory: 7.4 to
    6.4 GB.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault, Stage
from boundby.fixes import jax_step
from boundby.model import HostKind, units
from boundby.model.assumptions.jax_savings import (
    DONATED_COPIES_LEFT,
    DONATED_PAGES_SHARE,
    DONATED_UPDATES_SHARE,
)
from boundby.step.jax_programs import facts_of, fresh_pages_ns, lines_of_calls
from boundby.step.model import Edit, StepView

# A smaller saving is not reported.
_LEAST_BYTES = 8 * 1024**2
_UPDATE = "command_buffer::update"


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    if facts is None or facts.donates is not False or (facts.carried_bytes or 0) < _LEAST_BYTES:
        return None
    timeline = step.timeline
    host = timeline.host
    updates = np.array([name.startswith(_UPDATE) for name in timeline.names] or [False])
    updating_ns = DONATED_UPDATES_SHARE.value * float(host.duration_ns[updates[host.name]].sum())
    waits = bool((host.kind == HostKind.SYNC).any())
    hidden = updating_ns * step.stall_sensitivity(updating_ns)
    pages_ns = fresh_pages_ns(step, facts.carried_bytes or 0)
    names = facts.function.name if facts.function is not None else "step"
    copies = _copies(step)
    copied = sum(step.op_records[index].ns for index in copies)
    # Events of copies on a CPU may end before the copy does: no copy is faster than memory.
    unseen = sum(
        max(0.0, (step.op_records[index].floor_ns or 0.0) - step.op_records[index].ns)
        for index in copies
    )
    low, expected, high = (step.scaled(copies, left) for left in DONATED_COPIES_LEFT.high_to_low)
    evidence = f"{units.size(facts.carried_bytes or 0)} of state are kept twice"
    return Detection(
        low=low,
        expected=expected
        + Edit.save_step(
            (updating_ns if waits else hidden) + unseen + DONATED_PAGES_SHARE.value * pages_ns
        ),
        high=high + Edit.save_step(max(updating_ns, hidden) + unseen + pages_ns),
        where=[facts.function.source, *lines_of_calls(step, names)]
        if facts.function and facts.function.source
        else [],
        change=f"jax.jit({names}, donate_argnums=...)  # the positions of the state",
        assumes="nothing else uses the old state",
        evidence=evidence
        + (f"; {len(copies)} arrays of it are copied, for {units.time(copied)}" if copies else ""),
    )


def _copies(step: StepView) -> list[int]:
    """The operators that copy arguments of programs, in order to change them."""
    found = []
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is not None and call.hlo is not None and call.hlo.copies_argument:
            found.append(index)
    return found


FAULT = Fault(
    id="jax-no-donation",
    title="State is not donated",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    stage=Stage.HOST,
    fixes=(jax_step.DONATION,),
    document=__doc__,
    detect=detect,
)
