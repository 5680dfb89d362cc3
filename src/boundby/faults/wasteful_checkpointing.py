"""The backward recomputes what the forward has computed.

What it looks for
    Operators of the forward that run a second time in the backward, under activation checkpointing.

Why it costs time
    A checkpointed block keeps only its input and runs again when its gradients are needed: a third
    more arithmetic if the whole model is wrapped. This saves memory, and is wasted if there is
    enough memory.

What to change
    Switch checkpointing off (`model.gradient_checkpointing_disable()`), for all or for some layers.
    Or keep the results of products and recompute only cheap operators: `checkpoint(block, x,
    use_reentrant=False, context_fn=...)` with `create_selective_checkpoint_contexts`.

When it does not help
    When the activations do not fit in memory without it. Recomputing chains of elementwise
    operators that a compiler fuses saves time: it replaces more memory traffic than it adds
    arithmetic.

Measured on
    Eight blocks of 128 channels under `checkpoint` on two shared CPU cores: 260 to 158 ms a step
    (the fastest of 60 steps each, taken in turn).
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.fixes import checkpointing
from boundby.model import units
from boundby.model.assumptions.device import HOST_MEMORY_SHARE, USABLE_MEMORY
from boundby.model.assumptions.savings import PRODUCTS_KEPT_AT_WORST, RECOMPUTED_LAUNCHES_LEFT
from boundby.step.device_ops import recomputed
from boundby.step.model import Edit, StepView
from boundby.step.rows import without_rows

_CHANGE = "model.gradient_checkpointing_disable()  # or keep the results of products"


def detect(step: StepView) -> Detection | None:
    again = recomputed(step.timeline)
    mine = [
        index
        for index, record in enumerate(step.op_records)
        if record.row >= 0 and again[record.row] and record.op_class != "communication"
    ]
    if not mine:
        return None
    products = [i for i in mine if step.op_records[i].op_class == "contraction"]
    free, kept = _free_bytes(step), _written(step, mine)
    if step.device == "cpu" and _fits_in_host_memory(step, kept):
        return Detection(
            low=Edit.set_time(dict.fromkeys(products, 0.0)),
            # The second forward's Python and dispatch disappear too: no device hides them.
            expected=without_rows(step, again),
            high=without_rows(step, again),
            where=step.lines(step.op_records[index] for index in mine)[:2],
            change=_CHANGE,
            assumes=f"{units.size(kept)} more of activations are kept in the host's memory",
        )
    some = dict.fromkeys(products, 0.0)
    everything = dict.fromkeys(mine, 0.0)
    if free is not None and kept < free:
        worst, expected, best = some, everything, everything
    elif free is None:
        # The memory is unknown: keeping the products' results is usually affordable.
        worst = {
            index: PRODUCTS_KEPT_AT_WORST.value * step.op_records[index].ns for index in products
        }
        expected, best = some, everything
    elif _written(step, products) < free:
        worst, expected, best = dict[int, float](), some, some
    else:
        return None
    return Detection(
        low=Edit.set_time(worst),
        expected=Edit.set_time(expected, launch_share=RECOMPUTED_LAUNCHES_LEFT.value),
        high=Edit.set_time(best, launch_share=0.0),
        where=step.lines(step.op_records[index] for index in mine)[:2],
        change=_CHANGE,
        assumes=_assumes(free, kept),
    )


def _free_bytes(step: StepView) -> float | None:
    """Memory that the step leaves unused; None if unknown."""
    peak, total = step.host_counters.peak_bytes, step.machine.memory_bytes
    return USABLE_MEMORY.value * total - peak if peak and total else None


def _fits_in_host_memory(step: StepView, kept: float) -> bool:
    """Whether the kept results fit into the host's memory; on a CPU the peak is not known."""
    total = step.machine.memory_bytes
    return total is not None and kept < HOST_MEMORY_SHARE.value * total


def _written(step: StepView, op_records: list[int]) -> float:
    """The bytes that would be kept instead: the results of the recomputed operations."""
    return sum(
        cost.bytes_written for i in op_records if (cost := step.op_records[i].cost) is not None
    )


def _assumes(free: float | None, kept: float) -> str:
    held = units.size(kept)
    if free is None:
        return f"up to {held} more of activations fit into memory"
    return f"{units.size(free)} of memory stay free, and {held} more of activations are kept"


FAULT = Fault(
    id="wasteful-checkpointing",
    title="Activation checkpointing that memory does not need",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
    fixes=(checkpointing.NO_CHECKPOINTS,),
)
