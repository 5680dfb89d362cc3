"""Activations are computed again although there is memory for them.

What it looks for
    Operators that JAX marks as computed again for the backward pass: `jax.checkpoint`, `jax.remat`,
    `nn.remat`, `nnx.remat`.

Why it costs time
    Without a policy, everything in a checkpointed function is computed a second time: up to a third
    of the FLOPs of a training step.

What to change
    Remove the checkpoint where the activations fit into memory. Where they do not, keep the results
    of matrix products: `jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable)`.

When it does not help
    When the memory is needed: for a larger model, batch or context.

Measured on
    Not yet measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import units
from boundby.model.assumptions.jax_savings import REMATERIALISED_LEFT
from boundby.step.jax_programs import facts_of
from boundby.step.model import StepView

# The scope that JAX gives to recomputed operations.
_SCOPE = "rematted_computation"
_POLICY = "jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable)  # or no checkpoint"


def detect(step: StepView) -> Detection | None:
    modules = step.timeline.modules
    again = {at for at, name in enumerate(modules) if _SCOPE in name.split(".")}
    found = [index for index, record in enumerate(step.op_records) if record.module in again]
    if not found:
        return None
    low, expected, high = (step.scaled(found, left) for left in REMATERIALISED_LEFT.high_to_low)
    facts = facts_of(step)
    made_at = facts.checkpoints[:2] if facts is not None else []
    spent = sum(step.op_records[index].ns for index in found)
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=list(
            dict.fromkeys([*made_at, *step.lines(step.op_records[index] for index in found)])
        )[:3],
        change=_POLICY,
        assumes="the activations fit into the device's memory",
        evidence=f"{units.time(spent)} of operators are computed a second time{_memory(step)}",
    )


def _memory(step: StepView) -> str:
    programs = step.observation.programs if step.observation is not None else []
    peak = max((program.peak_bytes for program in programs), default=0)
    return f"; the step needs {units.size(peak)} with it" if peak else ""


FAULT = Fault(
    id="jax-rematerialisation",
    title="Activations are computed twice",
    kind="tuning",
    group="compute",
    frameworks=("jax",),
    document=__doc__,
    detect=detect,
)
