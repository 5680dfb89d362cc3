"""A compiled function is called for one sample after the other.

What it looks for
    A function of the script under `jax.jit` that is called several times in a step with a batch of
    one sample, or with one row of a numpy array after the other, and that does not take its own
    results.

Why it costs time
    Each call costs the host tens of microseconds or more, and its operators are too small to fill
    the device. One call for all samples does the same work in operators as large as the batch.

What to change
    `jax.vmap(f, in_axes=(None, 0))(params, batch)` inside of one `jax.jit`, or a batch dimension in
    the function itself. Per-sample gradients: `jax.vmap(jax.grad(loss), in_axes=(None, 0))`.

When it does not help
    Where a sample depends on the result of the one before, as the next state of an environment
    does. Where each sample fills the device.

Measured on
    Gradients of an LSTM for 16 samples, one core of a Xeon: 58% of the step saved, 41% predicted.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import Ints
from boundby.model.assumptions.jax_savings import BATCHED_SAMPLES_LEFT
from boundby.model.jax_facts import JaxFunction
from boundby.step.jax_programs import (
    facts_of,
    is_fetched_each_time,
    launched_by,
    lines_of_calls,
    program_calls,
)
from boundby.step.model import Edit, StepView

# Fewer calls are several parts of a step.
_FEWEST = 4


def detect(step: StepView) -> Detection | None:
    facts = facts_of(step)
    called = [
        (one, calls)
        for one in (facts.functions if facts is not None else [])
        if (one.batch[:1] == [1] or one.samples) and not one.carries
        if len(calls := program_calls(step.timeline, {one.name})) >= _FEWEST
        if not _needs_the_one_before(step, one, calls)
    ]
    if not called:
        return None
    function, calls = max(called, key=lambda one: len(one[1]))
    found = {step.record_of(int(event)) for event in launched_by(step.timeline, calls)}
    found = {index for index in found if index >= 0}
    if not found:
        return None
    launch = dict.fromkeys(found, 1 / (function.samples or len(calls)))
    low, expected, high = (
        Edit(
            op_ns={index: left * step.op_records[index].ns for index in found},
            launch_share=launch,
        )
        for left in BATCHED_SAMPLES_LEFT.high_to_low
    )
    lines = lines_of_calls(step, function.name)
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=[*lines, *([function.source] if function.source else [])][:3],
        change=f"jax.vmap({function.name}, in_axes=(None, 0))(params, batch)  # no loop",
        assumes="the samples do not depend on each other",
        evidence=f"{function.name} is called {len(calls)} times in a step, with one sample each",
    )


def _needs_the_one_before(step: StepView, function: JaxFunction, calls: Ints) -> bool:
    """Whether each result is fetched before the next call; gradients depend on parameters alone,
    and the rows of one array were there before the first call."""
    is_certain = function.traced_gradient or function.samples
    return not is_certain and is_fetched_each_time(step.timeline, calls)


FAULT = Fault(
    id="jax-looped-calls",
    title="A compiled function is called once per sample",
    kind="mistake",
    group="overhead",
    frameworks=("jax",),
    document=__doc__,
    detect=detect,
)
