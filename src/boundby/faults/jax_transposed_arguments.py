"""An array that lasts from step to step is transposed in memory in each of them.

What it looks for
    Operators of an XLA program without gradients that bring one of its arguments into another order
    in memory and compute nothing: a cache of keys and values that products read in another order of
    dimensions than it is kept in, or a weight.

Why it costs time
    Each step reads and writes the whole array, against the order of memory. Decoding one token
    needs each byte of the cache once; with the transposition it is moved three times.

What to change
    Keep the array in the order in which it is read. Keys of attention as
    `[batch, heads, head_dim, time]`, values as `[batch, heads, time, head_dim]`; a weight
    transposed once, before the loop.

When it does not help
    When other operators read the array in the old order: they need the transposition then.

Measured on
    Decoding with caches of 25 MB on one core of a Xeon, jax 0.10, other programs beside it: 23.0 to
    9.8 ms a token.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import OpCall, units
from boundby.model.assumptions.jax_savings import TRANSPOSED_ARGUMENTS_LEFT
from boundby.step.inference import is_inference
from boundby.step.model import StepView

# A smaller share of the step is not reported.
_COUNTS = 0.02


def detect(step: StepView) -> Detection | None:
    if not is_inference(step):
        return None  # the arrays of training change as a whole, and gradients need both orders
    calls: dict[int, OpCall] = {}
    for index, record in enumerate(step.op_records):
        call = step.call(record)
        if call is not None and call.hlo is not None and call.hlo.transposes_argument:
            calls[index] = call
    spent = sum(step.op_records[index].ns for index in calls)
    if spent < _COUNTS * step.wall_ns:
        return None
    left = TRANSPOSED_ARGUMENTS_LEFT
    low, expected, high = (step.scaled(list(calls), part) for part in left.high_to_low)
    costliest = max(calls, key=lambda index: step.op_records[index].ns)
    return Detection(
        low=low,
        expected=expected,
        high=high,
        where=step.lines(step.op_records[index] for index in calls)[:3],
        change=_change(calls[costliest]),
        assumes="nothing else reads the arrays in their present order",
        evidence=f"{len(calls)} arguments of the program are transposed, for {units.time(spent)}",
    )


def _change(call: OpCall) -> str:
    shapes = [tensor.shape for tensor in call.tensors]
    if len(shapes) < 2 or shapes[0] == shapes[-1]:
        return "# keep the array in the order in which the products read it"
    kept, read = (", ".join(map(str, shape)) for shape in (shapes[0], shapes[-1]))
    return f"# keep the array as [{read}], as it is read, instead of [{kept}]"


FAULT = Fault(
    id="jax-transposed-arguments",
    title="Arrays of the program are transposed in every step",
    kind="mistake",
    group="bandwidth",
    frameworks=("jax",),
    document=__doc__,
    detect=detect,
)
