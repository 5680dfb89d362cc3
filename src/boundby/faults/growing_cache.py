"""A cache that is copied whole for each new token.

What it sees
    Concatenations, in a step without a backward, whose result is nearly all one tensor that was
    there before the step, with a little appended: keys and values of the tokens so far.

Why it costs time
    `torch.cat` makes a new tensor and copies the old one into it for a token's worth of news. That
    reads and writes the whole cache once more than attention has to, and more with every token.

The change
    A cache of a fixed size that is written in place, `cache[:, :, at : at + 1] = k`, and attention
    over `cache[:, :, : at + 1]`, which is a view of it. With transformers:
    `cache_implementation="static"`, or a `StaticCache`.

When it does not help
    When the host is the limit: it takes as long to write as to concatenate (but a cache of a fixed
    size is what CUDA graphs need). While the cache is small beside the weights. Where attention
    goes over all of a fixed cache with a mask, it reads what is not filled yet.

Proven on
    A small decoder on two cores of a Xeon, eight sequences of 1,500 tokens: 65.7 to 17.5 ms a step,
    medians of five runs each in turn; of a step of 61.0 ms, 18.0 were predicted to be left.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase
from boundby.step.dataflow import OUTSIDE
from boundby.step.model import Edit, StepModel

# Of the cache, what is appended at most.
_NEWS = 0.1
# Attention over all of a fixed cache, half of it empty, gives back half of what is saved.
_WORST_LEFT = 0.5
_LIBRARY = "transformers/"


def detect(step_model: StepModel) -> Detection | None:
    if any(work.phase in (Phase.BACKWARD, Phase.OPTIMIZER) for work in step_model.op_records):
        return None
    left = {
        index: news
        for index in range(len(step_model.op_records))
        if (news := _news_ns(step_model, index)) is not None
    }
    if not left:
        return None
    op_records = [step_model.op_records[index] for index in left]
    half = {
        index: ns + _WORST_LEFT * (step_model.op_records[index].ns - ns)
        for index, ns in left.items()
    }
    where = step_model.lines(op_records)[:3]
    sources = [step_model.timeline.sources[work.inside] for work in op_records if work.inside >= 0]
    by_library = bool(sources) and all(_LIBRARY in source for source in sources)
    return Detection(
        worst=Edit(work_ns=half),
        expected=Edit(work_ns=left),
        best=Edit(work_ns=dict.fromkeys(left, 0.0)),
        where=where,
        change='model.generate(..., cache_implementation="static")  # or a StaticCache'
        if by_library
        else "cache[:, :, at : at + 1] = new  # in place of torch.cat: a cache of a fixed size",
        assumes="the most tokens there will be are known; attention reads only what is filled",
    )


def _news_ns(step_model: StepModel, index: int) -> float | None:
    """What writing only what is new takes; None where the work appends to no cache."""
    work, flow = step_model.op_records[index], step_model.flow
    call = step_model.call(work)
    if flow is None or call is None or call.name != "aten::cat" or len(call.tensors) < 2:
        return None
    given = flow.given[index]
    if len(given) != len(call.tensors):  # out of a graph: where its inputs come from is not known
        return None
    sizes = [tensor.bytes for tensor in call.tensors]
    cache = max(sizes)
    value = given[sizes.index(cache)]
    news = sum(sizes) - cache
    if value is None or flow.values[value].maker != OUTSIDE or not 0 < news <= _NEWS * cache:
        return None
    return min(work.ns, step_model.machine.copy_ns(2 * news) or 0.0)


FAULT = Fault(fault="growing-cache", group="bandwidth", document=__doc__, detect=detect)
