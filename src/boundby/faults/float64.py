"""Computation in float64 by accident.

What it looks for
    Products, convolutions and other operators that work on float64 tensors in the model. The lines
    named first are those that assign a float64 tensor and read none, then those of the costliest.

Why it costs time
    float64 takes twice the memory of float32, and half of its rate on a CPU. A GPU has few units
    for it: the rate is 1/2 to 1/64 of float32's, and no tensor cores are used.

What to change
    Convert at the source: `torch.from_numpy(x).float()`, `np.float32`, `dtype=torch.float32`.
    Remove `model.double()`. In JAX leave `jax_enable_x64` off, or convert arrays of numpy, which
    are in float64, before they are passed to a compiled function.

When it does not help
    When double precision is needed, as in solvers and some physics.

Measured on
    `docs/figures/planted.md`: scripts with this mistake on two cores, predicted and measured.
"""

from __future__ import annotations

from boundby.faults.fault import Detection, Fault
from boundby.model import Cost, Phase
from boundby.step.model import Edit, StepView
from boundby.step.op_record import OpRecord
from boundby.step.op_variants import as_it_is, benchmark, in_dtype, outermost_call, ratio_of

_DOUBLE = "float64"
# A smaller share of the step is not reported.
_COUNTS = 0.02
_BENCHMARKED = 0.003  # share of the step from which an operator is benchmarked
_CAST = in_dtype("float32")
_CHANGES = {
    "torch": "x = x.float()  # where the data is made; model.float()",
    "jax": "x = x.astype(np.float32)  # where the data is made; jax_enable_x64 only where needed",
}
_MOST_LINES = 5  # display limit


def detect(step: StepView) -> Detection | None:
    doubles = [index for index, op in enumerate(step.op_records) if _is_double(step, op)]
    total = sum(step.op_records[index].ns for index in doubles)
    if total < _COUNTS * step.wall_ns:
        return None
    records = [step.op_records[index] for index in doubles]
    ordered = sorted(
        (r for r in records if r.phase in (Phase.FORWARD, Phase.OTHER)), key=lambda r: r.row
    )
    first = [step.timeline.sources[r.source] for r in ordered[:3] if r.source >= 0]
    settings = step.evidence.settings
    made = settings.doubles_made_at[:_MOST_LINES]
    where = [*made, *step.lines(records)[:_MOST_LINES], *first, *settings.doubles_at]
    costliest = sorted(doubles, key=lambda index: -step.op_records[index].ns)
    halves = {index: _as_float32(step, step.op_records[index]) for index in costliest}
    return Detection(
        low=Edit.set_time({i: (ns + step.op_records[i].ns) / 2 for i, ns in halves.items()}),
        expected=Edit.set_time(halves),
        high=Edit.set_time({i: min(ns, step.op_records[i].ns / 2) for i, ns in halves.items()}),
        where=list(dict.fromkeys(where)),
        change=_CHANGES[step.framework],
        assumes="single precision is enough",
    )


def _is_double(step: StepView, record: OpRecord) -> bool:
    call = step.call(record)
    if call is None or not call.tensors:
        return False
    largest = max(call.tensors, key=lambda tensor: tensor.elements)
    return largest.dtype == _DOUBLE and largest.elements > 1


def _as_float32(step: StepView, record: OpRecord) -> float:
    """By a benchmark in both types, of the operator that the program called: for float32 another
    implementation may be chosen. Otherwise half the bytes; products in proportion to the machine's
    rates, if known."""
    if record.ns >= _BENCHMARKED * step.wall_ns:
        for call in (outermost_call(step, record), step.call(record)):
            if call is None:
                continue
            before, after = (benchmark(call, cast, loose=False) for cast in (as_it_is, _CAST))
            ratio = ratio_of(step, before, after)
            if ratio is not None:
                return record.ns * min(1.0, ratio)
    cost = record.cost or Cost()
    double = sum(flops for unit, flops in cost.flops.items() if unit.endswith(_DOUBLE))
    slow = step.machine.rate(f"matmul.{_DOUBLE}")
    fast = step.machine.rate("matmul.float32")
    if double and record.op_class == "contraction" and slow and fast:
        return record.ns * min(1.0, max(slow / fast, 1 / 64))
    return record.ns / 2


FAULT = Fault(
    id="float64",
    title="Computation in double precision",
    kind="mistake",
    group="compute",
    frameworks=("torch", "jax"),
    document=__doc__,
    detect=detect,
)
