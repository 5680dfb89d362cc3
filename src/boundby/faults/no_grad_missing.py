"""Autograd records operators whose gradients are never computed.

What it looks for
    Calls of a model whose result carries an autograd graph that no backward of the step, or of the
    next one, uses: inference, evaluation or a teacher without `torch.no_grad()`.

Why it costs time
    Each operator makes a node and keeps its inputs. Memory that the next operator could use again
    is held until the result is dropped, so the system must provide more of it, and on a CPU each
    result is written past the near caches: 20 `ReLU` of 256 KB took 0.93 ms with a graph and 0.36
    without. The fast path for inference of `nn.TransformerEncoderLayer` is not taken.

What to change
    `with torch.inference_mode():` around inference, `with torch.no_grad():` around evaluation.

When it does not help
    When the result is used for a gradient later.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured. CPU
    time of an encoder of three layers on a busy server: 7.3 to 4.6 ms; 5.7 ms with the fast path
    switched off.
"""

from __future__ import annotations

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.fixes import gradients
from boundby.model import HostKind, Phase
from boundby.model.assumptions.host import FUSED_LAYER_PYTHON, NODE_NS, RECORDING_SHARE
from boundby.model.assumptions.program_savings import UNRECORDED_WORK_SHARE
from boundby.model.estimate import Estimate
from boundby.step.fresh_pages import pages_ns, pages_per_step
from boundby.step.model import Edit, HostTime, StepView
from boundby.step.nesting import Mask
from boundby.step.rows import python_ns, rows_of_calls, time_of_rows

# A layer with an operator for inference alone, `_transformer_encoder_layer_fwd`.
_FUSED_LAYER = "nn.Module: TransformerEncoderLayer_"


def detect(step: StepView) -> Detection | None:
    found = step.evidence.unused_graphs
    if not found:
        return None
    rows = rows_of_calls(step, (one.call for one in found))
    evaluated = rows_of_calls(step, (one.call for one in found if not one.training))
    if not rows.any():
        return None
    ops = [i for i, op in enumerate(step.op_records) if op.row >= 0 and rows[op.row]]
    work = step.cpu_contention * sum(step.op_records[i].exposed_ns for i in ops)
    nearer = _without_held_memory(step, ops)
    # Memory is first touched inside the operators: it cannot take longer than they do.
    left = step.cpu_contention * sum(nearer.get(i, step.op_records[i].ns) for i in ops)
    pages = min(_pages_ns(step, ops), left)
    recording = Estimate(
        low=_recording_ns(step, rows, RECORDING_SHARE.low),
        expected=_recording_ns(step, rows, RECORDING_SHARE.value),
        high=_recording_ns(step, rows, RECORDING_SHARE.high),
    )
    reused = Edit.set_time(nearer)
    fused = _fused(step, evaluated)
    where = list(dict.fromkeys(line for one in found for line in one.call.where))
    most = recording.high + pages + UNRECORDED_WORK_SHARE.high * work
    return Detection(
        low=Edit.save_step(recording.low),
        expected=Edit.save_step(recording.expected + pages) + reused + fused,
        high=Edit.save_step(most) + reused + fused,
        where=where,
        change="with torch.no_grad():  # around the call"
        if step.evidence.has_backward
        else "with torch.inference_mode():  # around the call",
        assumes="no gradient of the result is computed later",
    )


def _nodes(step: StepView, rows: Mask) -> int:
    """Autograd nodes that these rows make."""
    host = step.timeline.host
    recorded = rows & (host.kind == HostKind.OP) & (host.sequence >= 0)
    recorded &= host.phase != Phase.BACKWARD
    return len(np.unique(host.sequence[recorded]))


def _recording_ns(step: StepView, rows: Mask, share: float) -> float:
    """The host time of recording; on a CPU at most its share of small operators' time in these
    rows: how long a node takes may have been measured on a busier machine."""
    overheads, node_ns = step.machine.overheads, NODE_NS.value
    if overheads.trained_op_ns is not None and overheads.eager_op_ns is not None:
        node_ns = max(0.0, overheads.trained_op_ns - overheads.eager_op_ns)
    each = share * node_ns
    ns = step.cpu_contention * each * _nodes(step, rows)
    plain = overheads.eager_op_ns
    if step.device != "cpu" or not plain:
        return ns
    return min(ns, each / (plain + each) * time_of_rows(step, rows))


def _pages_ns(step: StepView, ops: list[int]) -> float:
    total = sum(step.op_records[i].ns for i in ops)
    share = total / max(1.0, sum(op.ns for op in step.op_records))
    return pages_ns(step, share * pages_per_step(step))


def _without_held_memory(step: StepView, ops: list[int]) -> dict[int, float]:
    """The times of operators on a CPU if their results reuse memory that was just read.

    A graph keeps all results, so that each is written to memory that is in no near cache.
    """
    machine, records = step.machine, step.op_records
    written = {
        i: cost.bytes_written
        for i in ops
        if (cost := records[i].cost) is not None and not cost.in_place
    }
    held = machine.memory_roof(sum(written.values()))
    if step.device != "cpu" or held is None:
        return {}
    times = {}
    for index, size in written.items():
        record = records[index]
        cost = record.cost
        near = machine.memory_roof(cost.bytes) if cost is not None else None
        if cost is None or near is None or record.floor_ns is None or near.value <= held.value:
            continue
        # Written there, and the previous content written back.
        moved = min(cost.bytes, 2 * size)
        further = moved * (1 / held.value - 1 / near.value) * 1e9
        if record.ns > record.floor_ns:
            times[index] = max(record.floor_ns, record.ns - further)
    return times


def _fused(step: StepView, rows: Mask) -> Edit:
    """Layers that run as one operator without gradients: no Python, and no copies between layouts,
    which that operator makes while it adds biases."""
    host, names = step.timeline.host, step.timeline.names
    named = np.array([name.startswith(_FUSED_LAYER) for name in names] or [False])
    layers = rows & step.inside(named[host.name])
    copies = [
        index
        for index, op in enumerate(step.op_records)
        if op.row >= 0 and layers[op.row] and op.name in ("aten::copy_", "aten::clone")
    ]
    edit = Edit.remove(copies)
    if step.device != "cpu" or not layers.any():
        return edit
    return edit + Edit.save_host(
        HostTime(after_ns=(1 - FUSED_LAYER_PYTHON.value) * python_ns(step, layers))
    )


FAULT = Fault(
    id="no-grad-missing",
    title="Autograd records a forward whose gradient is never used",
    kind="mistake",
    group="overhead",
    document=__doc__,
    detect=detect,
    fixes=(gradients.UNRECORDED_EVALUATION,),
    yields_to=("unused-forward", "repeated-forward"),
)
