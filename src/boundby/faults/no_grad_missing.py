"""Autograd records operators whose gradients are never computed.

What it looks for
    Calls of a model whose result carries an autograd graph that no backward of the step, or of the
    next one, uses: inference, evaluation or a teacher without `torch.no_grad()`.

Why it costs time
    Each operator makes a node and keeps its inputs. Memory that the next operator could use again
    is held until the result is dropped, so the system must provide more of it. Fast paths for
    inference, such as that of `nn.TransformerEncoderLayer`, are not taken.

What to change
    `with torch.inference_mode():` around inference, `with torch.no_grad():` around evaluation.

When it does not help
    When the result is used for a gradient later.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.fixes import gradients
from boundby.model import HostKind, Phase
from boundby.model.assumptions.host import NODE_NS, RECORDING_SHARE
from boundby.step.model import Edit, StepView
from boundby.step.rows import rows_of_call


def detect(step: StepView) -> Detection | None:
    found = step.evidence.unused_graphs
    if not found:
        return None
    rows = np.zeros(len(step.timeline.host), np.bool_)
    for one in found:
        rows |= rows_of_call(step, one.call)
    if not rows.any():
        return None
    ops = [i for i, op in enumerate(step.op_records) if op.row >= 0 and rows[op.row]]
    expected, most = _saved(step, rows, ops)
    where = list(dict.fromkeys(line for one in found for line in one.call.where))
    return Detection(
        low=Edit(),
        expected=Edit.save_step(expected),
        high=Edit.save_step(most),
        where=where,
        change="with torch.no_grad():  # around the call"
        if step.evidence.has_backward
        else "with torch.inference_mode():  # around the call",
        assumes="no gradient of the result is computed later",
    )


def _saved(
    step: StepView, rows: np.ndarray[tuple[int], np.dtype[np.bool_]], ops: list[int]
) -> tuple[float, float]:
    """Nodes that are not made, and memory that is used again: the rest is a fast path's."""
    host = step.timeline.host
    recorded = rows & (host.kind == HostKind.OP) & (host.sequence >= 0)
    recorded &= host.phase != Phase.BACKWARD
    overheads = step.machine.overheads
    node_ns = NODE_NS.value
    if overheads.trained_op_ns is not None and overheads.eager_op_ns is not None:
        node_ns = max(0.0, overheads.trained_op_ns - overheads.eager_op_ns) * RECORDING_SHARE.value
    nodes = node_ns * len(np.unique(host.sequence[recorded]))
    seen = step.host_counters
    pages = 0.0
    if step.device == "cpu" and seen.step_pages and seen.fresh_page_ns:
        total = sum(step.op_records[i].ns for i in ops)
        share = total / max(1.0, sum(op.ns for op in step.op_records))
        pages = share * seen.fresh_page_ns * sum(seen.step_pages) / len(seen.step_pages)
    work = sum(step.op_records[i].exposed_ns for i in ops)
    lost = step.cpu_contention
    return lost * (nodes + pages), lost * (nodes + pages + 0.3 * work)


FAULT = Fault(
    id="no-grad-missing",
    title="Autograd records a forward whose gradient is never used",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    fixes=(gradients.UNRECORDED_EVALUATION,),
    yields_to=("repeated-forward",),
)
