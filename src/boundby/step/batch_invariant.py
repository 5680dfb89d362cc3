"""Which of a step's values are weights: of one size whatever the batch."""

from __future__ import annotations

from collections.abc import Iterable

from boundby.model import Phase, Tensor
from boundby.step.dataflow import OUTSIDE, Flow, Value
from boundby.step.model import StepView
from boundby.step.op_record import OpRecord

# Samples come first and weights second.
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
# What is added comes before them.
_ADDED_TO = ("addmm", "addmm_", "_addmm_activation")
BATCHED_PRODUCTS = {"bmm": (0, 1), "baddbmm": (1, 2), "baddbmm_": (1, 2)}
# The matrix comes before the vector, and a table before the indices into it.
_REVERSED = {
    "mv": (1, 0),
    "addmv": (2, 1),
    "addmv_": (2, 1),
    "embedding": (1, 0),
    "_embedding_bag": (1, 0),
    "_embedding_bag_forward_only": (1, 0),
}
# Weights are matrices and vectors beside sequences and states of one axis more; oneDNN's layer has
# four of them, and its states are matrices too.
_RECURRENT = {"_cudnn_rnn": None, "miopen_rnn": None, "mkldnn_rnn_layer": 4}
# What these write is as large as all that they read.
_HANDED_ON = ("::copy_", "::add_")
_SET = ("::fill_", "::zero_")
# What is more than so many times as large as all that it is made of is broadcast, over samples most
# likely, as a bias is where a CPU's product adds to it; the widest cast is of a byte to four.
WIDEST_CAST = 4
_NORMS = ("_norm", "_legit", "_no_training", "_with_update", "_no_update", "_norm_elemt")

Places = tuple[tuple[int, ...], tuple[int, ...]]


def weights_of(step: StepView, flow: Flow) -> set[int]:
    """Values from before the step that it updates, or that stand where operators take weights.

    A cast of a weight stands there for it. What is multiplied as samples anywhere, itself or in
    what was made of it, is none, whatever else it does: features are multiplied with themselves.
    """
    updated = {
        value
        for value, known in enumerate(flow.values)
        if known.maker == OUTSIDE and goes_to_optimizer(step, known)
    }
    samples, weights, placed = _standing(step, flow, updated)
    _trace_back(flow, samples, without=placed)
    outside = {value for value, known in enumerate(flow.values) if known.maker == OUTSIDE}
    still = _made_of(flow, outside - samples, without=placed)
    weights &= still
    _trace_back(flow, weights, without=placed)
    return updated | (weights & outside)


def batch_invariant_values(step: StepView, flow: Flow) -> set[int]:
    """The values that are of one size whatever the batch: weights, and what is made of them."""
    # A cast of a weight is as large as the weight.
    fixed = _made_of(flow, weights_of(step, flow), without=frozenset())
    for index in reversed(flow.order):
        if not any(
            value in fixed or goes_to_optimizer(step, flow.values[value])
            for value in flow.makes[index]
        ):
            continue
        # As is a gradient before its cast, and each of those that are added up; and the zeros that
        # an embedding's gradient starts from.
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
    """The values in places of samples and of weights, and the works that have such places."""
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
        if not first & updated:  # a weight that is multiplied from the left
            samples |= first
            weights |= second
    return samples, weights, placed


def _given(flow: Flow, index: int, places: Iterable[int]) -> set[int]:
    given = flow.given[index]
    values = (given[place] for place in places if place < len(given))
    return {value for value in values if value is not None}


def _places(record: OpRecord, tensors: tuple[Tensor, ...]) -> Places | None:
    """Where among its tensors an operator takes samples, and where weights; None if unknown."""
    name = record.name.partition("::")[2]
    vectors = tuple(at for at, tensor in enumerate(tensors) if len(tensor.shape) == 1)
    if name in _PRODUCTS:
        return (0,), (1,)
    if name in _ADDED_TO:
        return (1,), (2, *(at for at in vectors if at == 0))
    if name in BATCHED_PRODUCTS:
        first, second = BATCHED_PRODUCTS[name]
        strides = tensors[second].strides if len(tensors) > second else None
        # Batched alike, both may hold samples, as in attention; one matrix for all is a weight.
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
    """Adds what the values were made of by anything but operators with places of their own."""
    for index in reversed(flow.order):
        if index not in without and any(value in values for value in flow.makes[index]):
            values.update(flow.reads[index])


def _made_of(flow: Flow, values: set[int], *, without: Iterable[int]) -> set[int]:
    """The values, and what is made of nothing but them and is not broadcast."""
    found = set(values)
    excluded = set(without)
    for index in flow.order:
        reads = flow.reads[index]
        if index not in excluded and reads and all(value in found for value in reads):
            most = WIDEST_CAST * sum(reads.values())
            found.update(value for value in flow.makes[index] if flow.values[value].bytes <= most)
    return found
