"""A Python loop processes the samples of a batch one at a time.

What it looks for
    A line of the script that calls the same operator once per sample of the batch, on tensors that
    have no batch dimension.

Why it costs time
    Each call does very little arithmetic, so the step pays for Python, the dispatcher and autograd
    once per sample. Indexing one sample out of a batch also gives it a gradient of the size of the
    whole batch, zero everywhere except for that sample.

What to change
    Apply the operators to all samples at once: drop the index and reduce over dimensions. Use
    `torch.bmm` or `torch.einsum` for products and `torch.vmap` for a function written for one
    sample.

When it does not help
    When the work of one sample depends on the result of the previous one. When each sample is
    large enough to keep the device busy.

Measured on
    A variational autoencoder on two cores of a Xeon, with a loss summed over 128 samples in a loop:
    44.5 to 6.9 ms per step (medians of five alternating runs). Predicted: 40.7 to 10.2 ms; the rest
    of the step became faster as well. A similar loss on an H200: 15.7 to 1.7 ms, 89% less;
    predicted 84% (33 to 100).
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import Cost
from boundby.model.assumptions.program_savings import SCRIPT_LEFT
from boundby.step.model import Edit, StepView
from boundby.step.sample_loops import SampleLoop, dispatch_ns, find_sample_loops, holds_samples

_MOST_LINES = _MOST_NAMES = 3  # display limit


def detect(step: StepView) -> Detection | None:
    loops = find_sample_loops(step)
    if not loops:
        return None
    loops.sort(key=lambda loop: -sum(step.op_records[index].ns for index in loop.op_records))
    calls = sum(len(same) for loop in loops for same in loop.calls)
    sources = step.timeline.sources
    return Detection(
        low=_at_once(step, loops, left=SCRIPT_LEFT.value),
        expected=_at_once(step, loops, left=0.0),
        high=_at_once(step, loops, left=0.0, for_nothing=True),
        where=[sources[loop.source] for loop in loops[:_MOST_LINES]],
        change=f"# all {step.samples} samples at once: {calls:,} calls "
        f"({_names(step, loops)}) are {sum(len(loop.calls) for loop in loops)} then",
        assumes="no sample's work depends on another's",
    )


def _names(step: StepView, loops: list[SampleLoop]) -> str:
    """The costliest of the repeated calls."""
    total: dict[str, float] = {}
    for loop in loops:
        for index in (index for same in loop.calls for index in same):
            record = step.op_records[index]
            name = record.name.rpartition("::")[2]
            total[name] = total.get(name, 0.0) + record.ns
    ranked = sorted(total, key=lambda name: -total[name])
    return ", ".join(ranked[:_MOST_NAMES]) + (", ..." if len(ranked) > _MOST_NAMES else "")


def _at_once(
    step: StepView, loops: list[SampleLoop], *, left: float, for_nothing: bool = False
) -> Edit:
    op_ns: dict[int, float] = {}
    gone: list[int] = []
    for loop in loops:
        for first, *others in loop.calls:
            same = sum(step.op_records[index].ns for index in (first, *others))
            together = 0.0 if for_nothing else min(same, _together_ns(step, first, len(others)))
            op_ns[first] = together + left * (same - together)
            op_ns |= dict.fromkeys(others, 0.0)
            gone += others
    if step.device == "cpu":  # dispatch and Python at these lines were measured together
        return Edit.set_time(op_ns) + Edit.save_step((1 - left) * dispatch_ns(step, loops))
    return Edit.set_time(op_ns) + Edit.scale_launches(gone, left)


def _together_ns(step: StepView, index: int, others: int) -> float:
    """One call for all samples, by the machine's curves: a multiple of the work if a call handled
    one sample, and the same work if each call handled all of them."""
    cost, machine = step.op_records[index].cost or Cost(), step.machine
    count = 1 if holds_samples(step, index) else others + 1
    moved = machine.copy_ns(count * cost.bytes) or 0.0
    products = (machine.product_ns(unit, count * flops) for unit, flops in cost.flops.items())
    return max(moved, *(ns or 0.0 for ns in products), 0.0)


FAULT = Fault(
    id="looped-samples",
    title="Loop over the samples of a batch",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
)
