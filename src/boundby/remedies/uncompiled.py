"""Layers that `torch.compile` leaves as they are: recurrent ones, at which its graph breaks.

Not their products alone: what is cast, spread and laid out for them, and all of their backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boundby.model import HostKind, Phase
from boundby.picture import Picture

# What `nn.LSTM`, `nn.GRU` and `nn.RNN` call. (A cell alone is compiled.)
_LAYERS = ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu")


@dataclass(frozen=True, slots=True)
class Uncompiled:
    """The works of such layers, by index, and how often the model calls one."""

    works: frozenset[int]
    calls: int


def uncompiled(picture: Picture) -> Uncompiled:
    return picture.once(_found)


def _found(picture: Picture) -> Uncompiled:
    host = picture.timeline.host
    named = np.array([name in _LAYERS for name in picture.timeline.names] or [False])
    layers = (host.kind == HostKind.OP) & named[host.name]
    if not layers.any():
        return Uncompiled(frozenset(), 0)
    inside = picture.inside_both_ways(layers)
    works = frozenset(
        index for index, work in enumerate(picture.works) if work.row >= 0 and inside[work.row]
    )
    return Uncompiled(works, int((layers & (host.phase != Phase.BACKWARD)).sum()))
