"""The key-value cache is copied as a whole for each new token.

What it looks for
    Concatenations, in a step without a backward, whose result consists mostly of one tensor that
    existed before the step: the keys and values of the previous tokens.

Why it costs time
    `torch.cat` allocates a new tensor and copies the old one to add one token. This reads and
    writes the whole cache in addition to what attention reads, and grows with every token.

What to change
    Allocate the cache once at its maximum size and write in place,
    `cache[:, :, at : at + 1] = k`. Attend over the view `cache[:, :, : at + 1]`. With transformers
    use `cache_implementation="static"` or a `StaticCache`.

When it does not help
    When the host limits the step: a write takes the host as long as a concatenation (but CUDA
    graphs need a cache of fixed size). While the cache is small compared with the weights. When
    attention covers the whole fixed cache with a mask, it also reads the part that is not filled.

Measured on
    A small decoder on two cores of a Xeon, eight sequences of 1,500 tokens: 65.7 to 17.5 ms per
    step (medians of five alternating runs). Predicted: 61.0 to 18.0 ms.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import Phase
from boundby.model.assumptions.detection import APPENDED_SHARE
from boundby.model.assumptions.program_savings import APPENDED_CACHE_LEFT
from boundby.step.dataflow import OUTSIDE
from boundby.step.model import Edit, StepView

_LIBRARY = "transformers/"


def detect(step: StepView) -> Detection | None:
    if any(record.phase in (Phase.BACKWARD, Phase.OPTIMIZER) for record in step.op_records):
        return None
    left = {
        index: news
        for index in range(len(step.op_records))
        if (news := _news_ns(step, index)) is not None
    }
    if not left:
        return None
    op_records = [step.op_records[index] for index in left]
    half = {
        index: ns + APPENDED_CACHE_LEFT.value * (step.op_records[index].ns - ns)
        for index, ns in left.items()
    }
    where = step.lines(op_records)[:3]
    sources = [step.timeline.sources[record.inside] for record in op_records if record.inside >= 0]
    by_library = bool(sources) and all(_LIBRARY in source for source in sources)
    return Detection(
        low=Edit.set_time(half),
        expected=Edit.set_time(left),
        high=Edit.set_time(dict.fromkeys(left, 0.0)),
        where=where,
        change='model.generate(..., cache_implementation="static")  # or a StaticCache'
        if by_library
        else "cache[:, :, at : at + 1] = new  # in place of torch.cat: a cache of a fixed size",
        assumes="the maximum number of tokens is known; attention reads only the filled part",
    )


def _news_ns(step: StepView, index: int) -> float | None:
    """The time of writing only the new part; None if the operation does not append to a cache."""
    record, flow = step.op_records[index], step.flow
    call = step.call(record)
    if flow is None or call is None or call.name != "aten::cat" or len(call.tensors) < 2:
        return None
    given = flow.arguments[index]
    if len(given) != len(call.tensors):  # from a graph: where its inputs come from is unknown
        return None
    sizes = [tensor.bytes for tensor in call.tensors]
    cache = max(sizes)
    value = given[sizes.index(cache)]
    news = sum(sizes) - cache
    if (
        value is None
        or flow.values[value].maker != OUTSIDE
        or not 0 < news <= APPENDED_SHARE.value * cache
    ):
        return None
    return min(record.ns, step.machine.copy_ns(2 * news) or 0.0)


FAULT = Fault(
    id="growing-cache",
    title="Key-value cache copied for every token",
    kind="mistake",
    group="bandwidth",
    document=__doc__,
    detect=detect,
)
