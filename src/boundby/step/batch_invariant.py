"""Finds the values of a step whose size does not depend on the batch: weights."""

from __future__ import annotations

from collections.abc import Iterable

from boundby.model import Phase, Tensor
from boundby.step.dataflow import OUTSIDE, Flow, Value
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord

# Arguments: samples first, weights second.
_PRODUCTS = (
    "mm",
    "linear",
    "mkldnn_linear",
    "_int_mm",
    "_scaled_mm",
    "_scaled_mm_v2",
    "_grouped_mm",
    "_scaled_grouped_mm",
    "_weight_int8pack_mm",
    "_weight_int4pack_mm",
    "_weight_int4pack_mm_for_cpu",
    "_mkl_linear",
    "_linear_pointwise",
)
# Added values come before the matrices.
_ADDED_TO = ("addmm", "addmm_", "_addmm_activation")
BATCHED_PRODUCTS = {"bmm": (0, 1), "baddbmm": (1, 2), "baddbmm_": (1, 2)}
# The matrix comes before the vector, and a table before its indices.
_REVERSED = {
    "mv": (1, 0),
    "addmv": (2, 1),
    "addmv_": (2, 1),
    "embedding": (1, 0),
    "_embedding_bag": (1, 0),
    "_embedding_bag_forward_only": (1, 0),
}
# The dimensions of weights beside those of sequences and states, which have one more; oneDNN's
# layer has four weights, and its states have as many dimensions as they.
_RECURRENT = {"_cudnn_rnn": None, "miopen_rnn": None, "mkldnn_rnn_layer": 4}
# Their output is as large as all of their inputs together.
_HANDED_ON = ("::copy_", "::add_")
_SET = ("::fill_", "::zero_")
# A value more than this many times as large as all its inputs is broadcast, most likely over
# samples, as a bias is. Casts widen at most 4 times, from one byte to four.
WIDEST_CAST = 4
_NORMS = ("_norm", "_legit", "_no_training", "_with_update", "_no_update", "_norm_elemt")

Places = tuple[tuple[int, ...], tuple[int, ...]]


def weights_of(step: StepView, flow: Flow) -> set[int]:
    """Values from before the step that it updates, or that are used where operators take weights.

    A cast of a weight counts as the weight. A value that is used as samples anywhere, itself or
    through values made of it, is not a weight.
    """
    updated = {
        value
        for value, from_before in enumerate(flow.values)
        if from_before.maker == OUTSIDE and goes_to_optimizer(step, from_before)
    }
    samples, weights, placed = _standing(step, flow, updated)
    _trace_back(flow, samples, without=placed)
    outside = {
        value for value, from_before in enumerate(flow.values) if from_before.maker == OUTSIDE
    }
    still = _made_of(flow, outside - samples, without=placed)
    weights &= still
    _trace_back(flow, weights, without=placed)
    return updated | (weights & outside)


def batch_invariant_values(step: StepView, flow: Flow) -> set[int]:
    """The values whose size does not depend on the batch: weights, and what is made of them
    alone."""
    # A cast of a weight is as large as the weight.
    fixed = _made_of(flow, weights_of(step, flow), without=frozenset())
    for index in reversed(flow.order):
        if not any(
            value in fixed or goes_to_optimizer(step, flow.values[value])
            for value in flow.makes[index]
        ):
            continue
        # So is a gradient before its cast, each of the gradients that are summed, and the zeros
        # that an embedding's gradient starts from.
        handed_on = step.op_records[index].name.endswith(_HANDED_ON)
        fixed |= {
            value for value in flow.reads[index] if handed_on or is_set(step, flow.values[value])
        }
    return fixed


def is_set(step: StepView, value: Value) -> bool:
    return value.maker != OUTSIDE and step.op_records[value.maker].name.endswith(_SET)


def goes_to_optimizer(step: StepView, value: Value) -> bool:
    return any(step.op_records[reader].phase == Phase.OPTIMIZER for reader in value.readers)


def _standing(step: StepView, flow: Flow, updated: set[int]) -> tuple[set[int], set[int], set[int]]:
    """The values used as samples and as weights, and the operations that have such arguments."""
    samples: set[int] = set()
    weights: set[int] = set()
    placed: set[int] = set()
    for index in flow.order:
        record = step.op_records[index]
        call = step.call(record)
        places = _places(record, call.tensors) if call is not None else None
        if places is None:
            continue
        placed.add(index)
        first, second = (_given(flow, index, chosen) for chosen in places)
        if not first & updated:  # a weight as the left operand
            samples |= first
            weights |= second
    return samples, weights, placed


def _given(flow: Flow, index: int, places: Iterable[int]) -> set[int]:
    argument_values = flow.arguments[index]
    values = (argument_values[place] for place in places if place < len(argument_values))
    return {value for value in values if value is not None}


def _places(record: OpRecord, tensors: tuple[Tensor, ...]) -> Places | None:
    """The positions of an operator's arguments that are samples, and of those that are weights;
    None if unknown."""
    name = record.name.partition("::")[2]
    vectors = tuple(at for at, tensor in enumerate(tensors) if len(tensor.shape) == 1)
    if name in _PRODUCTS:
        return (0,), (1,)
    if name in _ADDED_TO:
        return (1,), (2, *(at for at in vectors if at == 0))
    if name in BATCHED_PRODUCTS:
        first, second = BATCHED_PRODUCTS[name]
        strides = tensors[second].strides if len(tensors) > second else None
        # If both have a batch dimension, both may be samples, as in attention; one matrix for all
        # samples is a weight.
        return (first,), ((second,) if strides and not strides[0] else ())
    if name in _REVERSED:
        first, second = _REVERSED[name]
        return (first,), (second,)
    if name in _RECURRENT:
        flat = tuple(at for at, tensor in enumerate(tensors) if at and len(tensor.shape) < 3)
        return (0,), flat[: _RECURRENT[name]]
    if record.op_class == "contraction" and ("conv" in name or "linear" in name):
        return ((0, 1), (2,)) if "backward" in name else ((0,), (1, *vectors))
    if record.op_class == "normalization" and name.endswith(_NORMS):
        return (0,), vectors
    return None


def _trace_back(flow: Flow, values: set[int], *, without: set[int]) -> None:
    """Add what the values were made of, except by operators whose arguments are known by place."""
    for index in reversed(flow.order):
        if index not in without and any(value in values for value in flow.makes[index]):
            values.update(flow.reads[index])


def _made_of(flow: Flow, values: set[int], *, without: Iterable[int]) -> set[int]:
    """The values, and those made only of them and not broadcast."""
    made = set(values)
    excluded = set(without)
    for index in flow.order:
        reads = flow.reads[index]
        if index not in excluded and reads and all(value in made for value in reads):
            most = WIDEST_CAST * sum(reads.values())
            made.update(value for value in flow.makes[index] if flow.values[value].bytes <= most)
    return made
