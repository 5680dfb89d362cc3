"""A backward keeps its graph, or records itself, without need.

What it looks for
    `backward(retain_graph=True)` after which no second backward passes through the graph, and
    `create_graph=True` without a second derivative later.

Why it costs time
    With `create_graph=True` every operator of the backward makes an autograd node, every gradient
    is copied instead of being handed over, and parameters and gradients form cycles that hold all
    memory until garbage is collected. `retain_graph=True` keeps the memory of activations.

What to change
    `loss.backward()`.

When it does not help
    With gradient penalties and second derivatives, which need the graph.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import HostKind, Phase
from boundby.model.assumptions.host import NODE_NS
from boundby.model.assumptions.savings import RETAINED_NODE_SHARE
from boundby.step.model import Edit, StepView


def detect(step: StepView) -> Detection | None:
    found = step.evidence.kept_graphs
    if not found:
        return None
    nodes_ns = _nodes_ns(step) if any(one.create for one in found) else 0.0
    pages_ns = _pages_ns(step)
    return Detection(
        low=Edit.save_step(RETAINED_NODE_SHARE.low * nodes_ns),
        expected=Edit.save_step(RETAINED_NODE_SHARE.value * nodes_ns + 0.5 * pages_ns),
        high=Edit.save_step(RETAINED_NODE_SHARE.high * nodes_ns + pages_ns),
        where=list(dict.fromkeys(one.where[0] for one in found if one.where)),
        change="loss.backward()  # without "
        + ("create_graph" if any(one.create for one in found) else "retain_graph"),
        assumes="no gradients of these gradients are computed",
    )


def _nodes_ns(step: StepView) -> float:
    """What recording the operators of the backward takes."""
    host, overheads = step.timeline.host, step.machine.overheads
    each = NODE_NS.value
    if overheads.trained_op_ns is not None and overheads.eager_op_ns is not None:
        each = max(0.0, overheads.trained_op_ns - overheads.eager_op_ns)
    backward = (host.kind == HostKind.OP) & (host.phase == Phase.BACKWARD)
    works = {op.row for op in step.op_records}
    return step.cpu_contention * each * sum(1 for row in np.flatnonzero(backward) if row in works)


def _pages_ns(step: StepView) -> float:
    """Memory that is new to the process in every step."""
    seen = step.host_counters
    if step.device != "cpu" or not seen.step_pages:
        return 0.0
    pages = sum(seen.step_pages) / len(seen.step_pages)
    return step.cpu_contention * seen.fresh_page_ns * pages


FAULT = Fault(
    id="retained-graph",
    title="Autograd graph retained without need",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
)
