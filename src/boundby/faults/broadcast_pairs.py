"""All pairs of rows are compared through a tensor of every difference.

What it looks for
    A difference or a product of two tensors that are broadcast against each other, so that the
    result has every pair of their rows, which is then squared and summed over the rows' numbers:
    distances to a codebook, to neighbours or to prototypes, similarities of all pairs. The
    operators are followed by the memory that one writes and the next reads.

Why it costs time
    The result has as many numbers for each pair as a row has. It is written and read by each
    operator, forward and backward, although one number for each pair is wanted.

What to change
    A product of matrices makes that number without the tensor between: `a @ b.mT` for products;
    for squared distances `a.square().sum(-1, keepdim=True) + b.square().sum(-1) - 2 * a @ b.mT`,
    or `torch.cdist(a, b)`, which takes `p=1` for sums of absolute differences.

When it does not help
    When rows have only a few numbers. Where rows are nearly equal, the squared distance from
    products loses digits: `torch.cdist(..., compute_mode="donot_use_mm_for_euclid_dist")` does not.

Measured on
    The distances of a vector-quantised autoencoder to its codebook on two cores of a Xeon: 68% of
    the step on a quiet machine; 60% predicted on an overloaded one (`docs/figures/planted.md`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import DTYPE_BYTES, OpCall, Phase, Tensor
from boundby.ops.reduction import reduced_axes
from boundby.ops.traffic import argument
from boundby.step.dataflow import Flow
from boundby.step.model import Edit, StepView

_DIFFERENCES, _PRODUCTS = ("sub", "rsub"), ("mul",)
_ALONG = ("pow", "square", "mul", "abs", "neg", "add", "sub", "div")
# Reductions, and the position of the argument that names their dimensions.
_SUMS = {"sum": 1, "mean": 1, "linalg_vector_norm": 2, "norm": 2}
# A result of fewer times the numbers of its two tensors is not reported.
_LARGER = 4
# For squared distances, the passes over the result besides the product: twice it, plus each norm.
_PASSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """The operators between two tensors and one number for each pair of their rows."""

    forward: tuple[int, ...]
    absolute: bool
    elements: float  # of the tensor between
    pairs: float
    bytes: float  # of one number for each pair


def detect(step: StepView) -> Detection | None:
    flow = step.flow
    found = list(_all_pairs(step, flow)) if flow is not None else []
    if not found:
        return None
    every = [_with_backward(step, one) for one in found]
    at_once = [_at_once_ns(step, one, ops) for one, ops in zip(found, every, strict=True)]

    def edit(left: float) -> Edit:
        times: dict[int, float] = {}
        for ops, ns in zip(every, at_once, strict=True):
            took = sum(step.op_records[index].ns for index in ops)
            times |= dict.fromkeys(ops, 0.0)
            times[ops[0]] = min(took, ns) + left * (took - min(took, ns))
        gone = [index for ops in every for index in ops[1:]]
        return Edit.set_time(times) + Edit.scale_launches(gone, left)

    largest = max(found, key=lambda one: one.elements)
    return Detection(
        low=edit(0.5),
        expected=edit(0.0),
        high=edit(0.0),
        where=step.lines(step.op_records[index] for ops in every for index in ops),
        change="torch.cdist(a, b, p=1)"
        if largest.absolute
        else "distances = a.square().sum(-1, keepdim=True) + b.square().sum(-1) - 2 * a @ b.mT",
        assumes="one number for each pair is needed, not the differences themselves",
        evidence=f"a tensor of {largest.elements:,.0f} numbers is made, and reduced to "
        f"{largest.pairs:,.0f}",
    )


def _all_pairs(step: StepView, flow: Flow) -> Iterator[_Pairs]:
    for index in flow.order:
        record = step.op_records[index]
        call = step.call(record)
        name = _plain(record.name)
        if call is None or record.phase == Phase.BACKWARD or name not in _DIFFERENCES + _PRODUCTS:
            continue
        shape, shared = _broadcast(call)
        if not shared:
            continue
        chain = _until_sums(step, flow, index, shape, shared)
        if chain is None or (name in _PRODUCTS and len(chain) > 2):
            continue
        if name in _DIFFERENCES and not _is_distance(step, chain):
            continue
        elements = float(np.prod(shape))
        summed = float(np.prod([shape[axis] for axis in shared]))
        yield _Pairs(
            forward=tuple(chain),
            absolute=any(_plain(step.op_records[one].name) == "abs" for one in chain),
            elements=elements,
            pairs=elements / summed,
            bytes=elements / summed * DTYPE_BYTES.get(call.tensors[0].dtype, 4),
        )


def _plain(name: str) -> str:
    return name.rpartition("::")[2].removesuffix("_")


def _broadcast(call: OpCall) -> tuple[tuple[int, ...], list[int]]:
    """The shape of the result, and the axes that both tensors have, if each also has an axis that
    the other repeats; no axes otherwise."""
    tensors = [one for one in call.args[:2] if isinstance(one, Tensor)]
    if len(tensors) < 2:
        return (), []
    rank = max(len(one.shape) for one in tensors)
    first, second = (_extents(one, rank) for one in tensors)
    shape = tuple(max(a, b) for a, b in zip(first, second, strict=True))
    sides = list(zip(first, second, strict=True))
    mine = [a > 1 and b == 1 for a, b in sides]
    theirs = [b > 1 and a == 1 for a, b in sides]
    shared = [axis for axis, (a, b) in enumerate(sides) if a > 1 and b > 1]
    # Rows end in what is summed; axes before the pairs are those of a batch.
    summed = [
        axis for axis in shared if axis > max(np.flatnonzero(np.add(mine, theirs)), default=rank)
    ]
    large = np.prod(shape) >= _LARGER * (np.prod(first) + np.prod(second))
    return shape, summed if any(mine) and any(theirs) and large else []


def _extents(one: Tensor, rank: int) -> list[int]:
    """The extents of a tensor, 1 where it is repeated."""
    strides = one.strides if one.strides and len(one.strides) == len(one.shape) else None
    known = [
        extent if strides is None or strides[axis] else 1 for axis, extent in enumerate(one.shape)
    ]
    return [1] * (rank - len(known)) + known


def _until_sums(
    step: StepView, flow: Flow, start: int, shape: tuple[int, ...], shared: list[int]
) -> list[int] | None:
    """The operators that read the result, until all are sums over the shared axes; None if
    something else reads it."""
    found, waiting, sums = {start: None}, [start], 0
    while waiting:
        for value in flow.makes[waiting.pop()]:
            for reader in flow.values[value].readers:
                record = step.op_records[reader]
                if reader in found or record.phase == Phase.BACKWARD:
                    continue
                call, name = step.call(record), _plain(record.name)
                if call is None or not call.tensors:
                    return None
                found[reader] = None
                x = call.tensors[0]
                if name in _SUMS:
                    dims = argument(call, _SUMS[name])
                    if x.shape != shape or reduced_axes(x, dims) != set(shared):
                        return None
                    sums += 1
                elif name in _ALONG and x.shape == shape and _is_alone(call, shape):
                    waiting.append(reader)
                else:
                    return None
    return list(found) if sums else None


def _is_alone(call: OpCall, shape: tuple[int, ...]) -> bool:
    """Whether an operator combines the tensor with numbers or with itself alone."""
    others = {one.storage for one in call.tensors[1:] if one.elements > 1}
    return others <= {call.tensors[0].storage} and all(
        one.shape == shape for one in call.tensors if one.elements > 1
    )


def _is_distance(step: StepView, chain: list[int]) -> bool:
    """Whether differences are squared, or made positive, before they are summed."""
    names = {_plain(step.op_records[index].name) for index in chain}
    return bool(names & {"pow", "square", "mul", "abs", "linalg_vector_norm", "norm"})


def _with_backward(step: StepView, pairs: _Pairs) -> list[int]:
    """The operators with their backward, in order."""
    rows = np.zeros(len(step.timeline.host), np.bool_)
    rows[[step.op_records[index].row for index in pairs.forward]] = True
    rows = step.inside_both_ways(rows)
    inside = [at for at, one in enumerate(step.op_records) if one.row >= 0 and rows[one.row]]
    return list(dict.fromkeys([*pairs.forward, *inside]))


def _at_once_ns(step: StepView, pairs: _Pairs, ops: list[int]) -> float:
    """The time of the product and of the passes over its result, by the machine's curves; the
    backward of a product is two products."""
    machine = step.machine
    times = 3 if len(ops) > len(pairs.forward) else 1
    unit = "vector.float32" if pairs.absolute else "matmul.float32"
    product = machine.product_ns(unit, 2 * times * pairs.elements) or 0.0
    return product + (machine.copy_ns(2 * _PASSES * times * pairs.bytes) or 0.0)


FAULT = Fault(
    id="broadcast-pairs",
    title="All pairs through a tensor of differences",
    kind="mistake",
    group="bandwidth",
    document=__doc__,
    detect=detect,
    before=("unfused-operators", "far-from-roof"),
)
