"""Keys and values that are copied once for each of the heads that share them.

Attention as batched products needs as many keys as there are queries, so that shared ones are
repeated first, and their gradients summed afterwards. A fused kernel reads the shared ones as they
are (`enable_gqa=True`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from boundby.model import Phase, Tensor
from boundby.step.model import StepView


class Repeats(NamedTuple):
    """Operations that are not needed without the repetition, and by how much others are too
    large."""

    gone: frozenset[int] = frozenset()
    larger: Mapping[int, int] = MappingProxyType({})


def repeats(step: StepView, heads: dict[tuple[int, int], int]) -> Repeats:
    """Copies that repeat attention's inputs (number of heads by number of tokens), the sums of
    their gradients, and the casts between them and the products."""
    wide: dict[tuple[int, ...], int] = {}
    gone: dict[int, int] = {}
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is None or len(call.tensors) < 2 or not record.name.endswith("::copy_"):
            continue
        copy, source = call.tensors[:2]
        times = _times(source)
        if times > 1 and len(copy.shape) > 1 and _heads(copy) in heads:
            gone[index] = wide[copy.shape] = times
    if not wide:
        return Repeats()
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is None or record.phase != Phase.BACKWARD or not record.name.endswith("::sum"):
            continue
        if call.tensors and call.tensors[0].shape in wide:
            gone[index] = wide[call.tensors[0].shape]
    return Repeats(frozenset(gone), _casts(step, gone))


def _casts(step: StepView, gone: dict[int, int]) -> dict[int, int]:
    flow = step.flow
    if flow is None:
        return {}
    found = {}
    for index, times in gone.items():
        readers = {reader for value in flow.makes[index] for reader in flow.values[value].readers}
        summed = step.op_records[index].phase == Phase.BACKWARD
        for other in flow.makers[index] if summed else readers:
            call = step.call(step.op_records[other])
            if call is None or not step.op_records[other].name.endswith("::copy_"):
                continue
            if len({tensor.dtype for tensor in call.tensors}) > 1:
                found[other] = times
    return found


def _times(source: Tensor) -> int:
    """How often each element is read: along a dimension with a stride of 0."""
    times = 1
    for size, stride in zip(source.shape, source.strides or (), strict=False):
        times *= size if stride == 0 else 1
    return times


def _heads(tensor: Tensor) -> tuple[int, int]:
    """The numbers of heads and tokens, if the last two dimensions are tokens and width."""
    tokens, width = tensor.shape[-2:]
    return tensor.elements // (tokens * width or 1), tokens
