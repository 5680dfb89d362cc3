"""Attention scores and their masks in an unfused attention."""

from __future__ import annotations

import numpy as np

from boundby.model import Ints, Phase, Tensor
from boundby.step.model import StepView

# Square matrices at least this large are scores.
_SHORTEST = 32
_FILLING = ("masked_fill", "where")
# Where transformers makes its masks: part of one is copied from the host in every step.
_MASKS = "transformers/masking_utils.py"
# Functions that make causal masks, wherever they are defined.
_MAKES_CAUSAL = (": create_causal_mask", "::tril", "::tril_", "::triu", "::triu_")

Scores = tuple[int, int]  # the number of score matrices, and their side


def scores_of(tensor: Tensor) -> Scores | None:
    """How many square score matrices a tensor contains; None if it has another shape."""
    if len(tensor.shape) < 3 or tensor.shape[-1] != tensor.shape[-2]:
        return None
    side = tensor.shape[-1]
    return (tensor.elements // side**2, side) if side >= _SHORTEST else None


def scores_made(tensors: tuple[Tensor, ...]) -> Scores | None:
    """The score matrices that a batched product of two operands makes."""
    if len(tensors) < 2 or len(tensors[0].shape) != 3 or len(tensors[1].shape) != 3:
        return None
    batch, rows, _ = tensors[0].shape
    columns = tensors[1].shape[-1]
    return (batch, rows) if rows == columns and rows >= _SHORTEST else None


def touches_scores(step: StepView, index: int, wanted: set[Scores]) -> bool:
    """Whether an operation reads score matrices, or is a product that makes them."""
    record = step.op_records[index]
    if record.call < 0 or record.phase == Phase.OPTIMIZER or record.op_class == "communication":
        return False
    reads, makes = step.memoised(_scores_of_calls)[record.call]
    return not reads.isdisjoint(wanted) or (record.op_class == "contraction" and makes in wanted)


def _scores_of_calls(step: StepView) -> list[tuple[frozenset[Scores], Scores | None]]:
    """For each call the score matrices among its operands, and what it makes if it is a product."""
    found = []
    for call in step.timeline.calls:
        tensors = call.tensors
        reads = frozenset(one for tensor in tensors if (one := scores_of(tensor)) is not None)
        found.append((reads, scores_made(tensors)))
    return found


def causality(step: StepView, op_indices: list[int]) -> tuple[bool, bool]:
    """Whether a mask is causal, and whether it may be.

    A filled mask of length x length that all heads and samples share is causal. A mask that is
    added, or that differs between samples, may hide padding instead, unless the step makes a causal
    one.
    """
    surely = perhaps = False
    made = any(name.endswith(_MAKES_CAUSAL) for name in step.timeline.names)
    for index in op_indices:
        record = step.op_records[index]
        call = step.call(record)
        if call is None or record.op_class == "contraction" or record.phase == Phase.BACKWARD:
            continue
        side = max((scores[1] for t in call.tensors if (scores := scores_of(t))), default=0)
        most = max(tensor.elements for tensor in call.tensors)
        for tensor in call.tensors:
            if tensor.elements < most and _is_mask(tensor, side):
                perhaps = True
                filled = any(part in record.name for part in _FILLING)
                surely = surely or made or (filled and tensor.elements == side**2)
    return surely, perhaps


def is_masked(step: StepView, op_indices: list[int]) -> bool:
    """Whether something is added to the scores, or filled into them."""
    return any(
        sum(len(tensor.shape) > 1 for tensor in call.tensors) > 1
        for index in op_indices
        if step.op_records[index].phase != Phase.BACKWARD
        and any(part in step.op_records[index].name for part in (*_FILLING, "::add"))
        and step.op_records[index].op_class != "contraction"
        and (call := step.call(step.op_records[index])) is not None
    )


def _is_mask(tensor: Tensor, side: int) -> bool:
    """A mask of length x length, the same for all heads; one of keys alone has a stride of 0."""
    shape, strides = tensor.shape, tensor.strides
    if shape[-2:] != (side, side) or (len(shape) > 2 and shape[-3] != 1):
        return False
    return strides is None or all(strides[-2:])


def waits_for_masks(step: StepView) -> Ints:
    """Waits while a mask is made on the host: the fused kernel needs no mask."""
    inside, sources = step.timeline.host.inside, step.timeline.sources
    launches = step.launches
    if inside is None or not launches.wait.any():
        return np.empty(0, np.int64)
    masking = np.array([*(source.startswith(_MASKS) for source in sources), False])
    return np.flatnonzero(masking[inside[launches.rows]])
