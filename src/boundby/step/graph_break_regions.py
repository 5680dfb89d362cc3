"""What `torch.compile(model)` leaves as it is: recurrent layers, at which its graph breaks, and all
that is no part of the model, as a loss that the script computes of what the model returns.

Of layers not their products alone: what is cast, spread and laid out for them, and all of their
backward.
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
    """Works by index: those of such layers, of which the model calls so many, and those outside."""

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
    """Work in no module that is worth compiling, backward too; none where modules are not known.

    A module that multiplies nothing is a loss, and not the model.
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
