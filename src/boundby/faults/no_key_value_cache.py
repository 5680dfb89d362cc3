"""Tokens are generated without a key-value cache.

What it looks for
    A model that is called, without a backward, on the input of its last call and one position more:
    the values of the earlier positions are compared.

Why it costs time
    Each new token needs the keys and values of all earlier ones. Without a cache, everything is
    computed again for all of them: a text of n tokens costs n times the work.

What to change
    Keep keys and values of the earlier tokens and give the model the new token alone: with
    transformers `model.generate(..., use_cache=True)` or `past_key_values=`; in a model of one's
    own, keep `k` and `v` of each layer and append.

When it does not help
    When the model's attention is not causal, so that earlier results change with each token. With
    very short texts, where reading the weights takes most of the time.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

import re

import numpy as np

from boundby.faults.fault import Detection, Fault
from boundby.model import HostKind
from boundby.model.evidence import GrowingInput
from boundby.step.model import Edit, StepView
from boundby.step.nesting import nearest

_NUMBER = re.compile(r"_\d+$")


def detect(step: StepView) -> Detection | None:
    found = step.evidence.growing_input
    if found is None or step.evidence.has_backward:
        return None
    calls = [ops for ops in _operators_by_call(step, found) if _length(step, ops, found)]
    if not calls:
        return None
    lengths = [_length(step, ops, found) for ops in calls]
    # The first call of a text has all of its prompt to read.
    follow = [
        at
        for at, length in enumerate(lengths)
        if len(lengths) == 1 or (at and length == lengths[at - 1] + 1)
    ]
    times = {
        index: ns
        for at in follow
        for index, ns in _of_one_token(step, calls[at], lengths[at], found.rows).items()
    }
    if not times:
        return None
    records = step.op_records
    halfway = {index: (ns + records[index].ns) / 2 for index, ns in times.items()}
    return Detection(
        low=Edit.set_time(halfway),
        expected=Edit.set_time(times),
        high=Edit.set_time(times),
        where=found.where,
        change="logits, past = model(ids[:, -1:], past)  # a cache of keys and values",
        assumes="the model's attention is causal",
        evidence=f"each call gets all earlier tokens and one more, the last one {lengths[-1]}",
    )


def _operators_by_call(step: StepView, found: GrowingInput) -> list[list[int]]:
    """The operators of each outermost call of the model, in order of time."""
    host, names = step.timeline.host, step.timeline.names
    wanted = np.array([_NUMBER.sub("", name) == f"nn.Module: {found.module}" for name in names])
    calls = (host.kind == HostKind.PYTHON) & wanted[host.name]
    outermost = calls & (np.append(nearest(host.parent, calls), -1)[host.parent] < 0)
    around = nearest(host.parent, outermost)
    by_call: dict[int, list[int]] = {int(row): [] for row in np.flatnonzero(outermost)}
    for index, record in enumerate(step.op_records):
        if record.row >= 0 and (row := int(around[record.row])) >= 0:
            by_call[row].append(index)
    return [by_call[row] for row in sorted(by_call, key=lambda row: int(host.start_ns[row]))]


def _length(step: StepView, ops: list[int], found: GrowingInput) -> int:
    """The positions of the input: the second dimension of the first tensor with the batch's rows;
    0 if there is none."""
    for index in ops:
        call = step.call(step.op_records[index])
        for tensor in call.tensors if call is not None else ():
            if len(tensor.shape) >= 2 and tensor.shape[0] == found.rows:
                return int(tensor.shape[1])
    return 0


def _of_one_token(step: StepView, ops: list[int], length: int, rows: int) -> dict[int, float]:
    """The operators' times for one position: their part of the time, and in addition the traffic
    of what has no such dimension, as weights, which is read for one position as for all."""
    times: dict[int, float] = {}
    for index in ops:
        record = step.op_records[index]
        call = step.call(record)
        if call is None or length < 2:
            continue
        grows = [
            any(size in (length, rows * length) for size in tensor.shape) for tensor in call.tensors
        ]
        if not any(grows):
            continue
        kept = sum(tensor.bytes for tensor, one in zip(call.tensors, grows, strict=True) if not one)
        roof = step.machine.memory_roof(kept) if kept else None
        read_ns = kept / roof.value * 1e9 if roof is not None else 0.0
        times[index] = min(record.ns, record.ns / length + read_ns)
    return times


FAULT = Fault(
    id="no-key-value-cache",
    title="Generation without a key-value cache",
    kind="mistake",
    group="compute",
    document=__doc__,
    detect=detect,
    before=("no-grad-missing", "batch-too-small"),
)
