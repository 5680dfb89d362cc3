"""A backward keeps its graph, or records itself, without need.

What it looks for
    `backward(retain_graph=True)` after which no second backward passes through the graph, and
    `create_graph=True` without a second derivative later.

Why it costs time
    With `create_graph=True` every operator of the backward makes an autograd node, every gradient
    is copied instead of being handed over, and a leaf and its gradient form a cycle that holds all
    memory until the gradient is set to None: forever if it is an input's gradient. The system then
    provides new memory in every step. `retain_graph=True` keeps the memory of activations.

What to change
    `loss.backward()`.

When it does not help
    With gradient penalties and second derivatives, which need the graph.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured. A
    physics-informed network whose inputs need gradients: 10.7 to 5.6 ms of CPU time a step, 3.6 of
    it for 1,600 new pages.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import HostKind, Phase
from boundby.model.assumptions.host import NODE_NS
from boundby.model.assumptions.program_savings import RETAINED_NODE_SHARE
from boundby.step.fresh_pages import kept_pages_per_step, pages_ns, pages_per_step
from boundby.step.model import Edit, StepView


def detect(step: StepView) -> Detection | None:
    found = step.evidence.kept_graphs
    if not found:
        return None
    creates = any(one.create for one in found)
    nodes_ns = _nodes_ns(step) if creates else 0.0
    pages, grown = pages_per_step(step), kept_pages_per_step(step)
    # The graph alone holds the memory by which the process grows in every step; the other pages may
    # be allocated without it too.
    likely, most = pages_ns(step, (pages + grown) / 2), pages_ns(step, pages)
    copies = Edit.remove(_copies(step)) if creates else Edit()
    return Detection(
        low=Edit.save_step(RETAINED_NODE_SHARE.low * nodes_ns),
        expected=Edit.save_step(RETAINED_NODE_SHARE.value * nodes_ns + likely) + copies,
        high=Edit.save_step(RETAINED_NODE_SHARE.high * nodes_ns + most) + copies,
        where=list(dict.fromkeys(one.where[0] for one in found if one.where)),
        change="loss.backward()  # without " + ("create_graph" if creates else "retain_graph"),
        assumes="no gradients of these gradients are computed",
    )


def _nodes_ns(step: StepView) -> float:
    """The time of recording the operators of the backward."""
    host, overheads = step.timeline.host, step.machine.overheads
    each = NODE_NS.value
    if overheads.trained_op_ns is not None and overheads.eager_op_ns is not None:
        each = max(0.0, overheads.trained_op_ns - overheads.eager_op_ns)
    backward = (host.kind == HostKind.OP) & (host.phase == Phase.BACKWARD)
    works = {op.row for op in step.op_records}
    return step.cpu_contention * each * sum(1 for row in np.flatnonzero(backward) if row in works)


def _copies(step: StepView) -> list[int]:
    """Gradients that are copied when they are accumulated, instead of being moved."""
    inside = step.within("AccumulateGrad")
    return [
        index
        for index, op in enumerate(step.op_records)
        if op.row >= 0 and inside[op.row] and op.name in ("aten::copy_", "aten::clone")
    ]


FAULT = Fault(
    id="retained-graph",
    title="Autograd graph retained without need",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
)
