"""Autograd graphs are kept from step to step.

What it looks for
    Autograd nodes that are still alive at the end of each step, more of them every time, and the
    lines that keep them: a list of losses, or a sum of losses, that was not detached.

Why it costs time
    Memory grows until it is full. On a CPU the system must provide new memory for every step, and
    computations on the growing list take longer each time.

What to change
    `losses.append(loss.detach())`, `total += loss.detach()`, or `.item()` where a number is wanted.

When it does not help
    When a later backward needs the graphs, as in a rollout.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model.assumptions.program_savings import GROWING_MEMORY_AT_LINES
from boundby.model.estimate import Estimate
from boundby.step.fresh_pages import kept_pages_per_step, pages_ns
from boundby.step.model import StepView
from boundby.step.rows import rows_at, time_of_rows


def detect(step: StepView) -> Detection | None:
    found = step.evidence.growth
    if found is None or not found.where:
        return None
    if step.evidence.unused_graphs and not step.evidence.has_backward:
        return None  # without a graph there is nothing to keep: `no-grad-missing` says so
    pages = pages_ns(step, kept_pages_per_step(step))
    at_lines = time_of_rows(step, rows_at(step, found.where))
    return Detection.of_saving(
        Estimate(
            low=0.0,
            expected=pages + GROWING_MEMORY_AT_LINES.value * at_lines,
            high=2 * pages + at_lines,
        ),
        where=found.where,
        change="losses.append(loss.detach())",
        assumes=f"the {found.nodes_per_step:.0f} autograd nodes kept in every step are not needed",
    )


FAULT = Fault(
    id="growing-memory",
    title="Memory grows from step to step",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    grows=True,
)
