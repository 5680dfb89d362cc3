"""What `torch.compile(model)` does not compile: recurrent layers, which break the graph, and
everything outside of the model, such as a loss that the script computes from its output.

Of recurrent layers not only the products: also casts, copies and layout changes for them, and all
of their backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boundby.model import HostKind, Phase
from boundby.step.model import StepView

# What `nn.LSTM`, `nn.GRU` and `nn.RNN` call. (A cell alone is compiled.)
_LAYERS = ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu")


@dataclass(frozen=True, slots=True)
class Uncompiled:
    """Operations of recurrent layers, with the number of layers that the model calls, and
    operations outside of the model."""

    layers: frozenset[int]
    calls: int
    outside: frozenset[int]

    @property
    def op_records(self) -> frozenset[int]:
        return self.layers | self.outside


def graph_break_rows(step: StepView) -> Uncompiled:
    return step.memoised(_found)


def _found(step: StepView) -> Uncompiled:
    host = step.timeline.host
    named = np.array([name in _LAYERS for name in step.timeline.names] or [False])
    layers = (host.kind == HostKind.OP) & named[host.name]
    outside = frozenset(_outside(step))
    if not layers.any():
        return Uncompiled(frozenset(), 0, outside)
    inside = step.inside_both_ways(layers)
    op_records = frozenset(
        index
        for index, record in enumerate(step.op_records)
        if record.row >= 0 and inside[record.row]
    )
    calls = int((layers & (host.phase != Phase.BACKWARD)).sum())
    return Uncompiled(op_records, calls, outside)


def _outside(step: StepView) -> list[int]:
    """Operations in no module that is worth compiling, backward included; none if modules are
    unknown.

    A module without products is a loss, not the model.
    """
    modules = step.timeline.modules
    outermost = [
        modules[record.module].partition(".")[0] if record.module >= 0 else ""
        for record in step.op_records
    ]
    models = {
        name
        for name, record in zip(outermost, step.op_records, strict=True)
        if name and record.op_class == "contraction"
    }
    return [index for index, name in enumerate(outermost) if models and name not in models]
