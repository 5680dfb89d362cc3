"""Running ahead: the same work as few large or many small operators.

The claim
    If operators are large enough, the host runs ahead of the device and its cost is hidden. Cut
    into small operators, the same work waits for the host. The size at which this changes follows
    from the dispatch cost.

The law
    Dispatching an operator costs the host a fixed time; the device needs (bytes / bandwidth) for
    it. On a GPU the two overlap and the longer one counts; they are equal at
    bytes = cost x bandwidth. At that size a kernel also has a start-up time and a gap to the
    previous kernel, which the two lines leave out: the operator takes that much longer. On a CPU
    nothing overlaps: both times add up, and at that same size an operator takes twice the dispatch
    cost.

The experiment
    One addition of two large arrays, cut into pieces from a few dozen elements up to large parts of
    the arrays. The time per piece is flat while the host limits and rises once the device limits.
    The measured size is where the two fitted lines cross.
"""

from __future__ import annotations

import time
from typing import Any

from boundby.hardware.stopwatch import Timing
from boundby.lab.asymptotes import crossing, flat, points_of, slope
from boundby.lab.bench import Bench, spread
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, between
from boundby.lab.rates import overhead_of, stream_rate, streamed_bytes
from boundby.model import Machine, units
from boundby.model.lab import Axis, Interval, Lines, Mark, Series

_BYTES = 12  # per element: two float32 read, one written
_SMALLEST = 64  # elements
_PIECES = 400  # at most, of each size: less than the launch queue holds
_ROUNDS = 5  # the median of them counts
# How far beyond the crossing to measure: on a CPU it is where one thread is still faster than
# several.
_FARTHEST = {"cuda": 32, "cpu": 1024}


def predict(machine: Machine, _: Probe) -> Predictions:
    cost = overhead_of(machine, "eager_op_ns")
    elements = cost * stream_rate(machine, "add") / 1e9 / _BYTES
    # On a CPU both costs add up, so twice the cost; on a GPU only a kernel's start-up time is
    # added.
    start = (machine.overheads.memory_t0_ns or 0.0) + (machine.overheads.kernel_gap_ns or 0.0)
    corner = 2.0 if machine.kind == "cpu" else 1.0 + start / cost
    rests = ("eager_op_ns", "memory.dram.add", "memory.dram")
    return {
        "crossover": between(
            elements / 1.5,
            elements,
            elements * 2.0,
            "operator size from which the device, not the host, is the limit, in elements",
            rests_on=rests,
        ),
        "host": between(
            cost / 1.25,
            cost,
            cost * 2.0,
            "time per operator of the smallest operators",
            "ns",
            rests_on=("eager_op_ns",),
        ),
        "bandwidth": around(
            stream_rate(machine, "add"),
            "bandwidth of the largest operators",
            "B/s",
            rests_on=("memory.dram.add", "memory.dram"),
        ),
        "overlap": between(
            max(0.9, corner / 1.4),
            corner,
            corner * 1.3,
            "time at the crossing over the dispatch cost",
            "x",
            rests_on=("eager_op_ns",),
        ),
    }


def measure(bench: Bench, _: Probe) -> Measured:
    import torch

    elements = streamed_bytes(bench.machine, quick=bench.quick) // _BYTES
    arrays = [torch.rand(elements, device=bench.target) for _ in range(3)]
    predicted = predict(bench.machine, Probe())
    largest = min(elements, int(_FARTHEST[bench.device.kind] * predicted["crossover"].value))
    sizes = [_SMALLEST * 2**p for p in range(30) if _SMALLEST * 2**p <= largest]
    with torch.inference_mode():
        times = [_time_per_operator(bench, arrays, size) for size in sizes]
        level, rise = flat(times), slope(sizes, times)
        found = crossing(level, rise)
        at_crossing = _time_per_operator(bench, arrays, max(_SMALLEST, round(found.value)))
    return Measured(
        found={
            "crossover": found,
            "host": level,
            "bandwidth": rise.inverse(1e9 * _BYTES),
            "overlap": at_crossing.over(level),
        },
        summary=f"the host limits operators of fewer than {units.count(round(found.value))} "
        f"elements; predicted: {units.count(round(predicted['crossover'].value))}",
        plots=[
            Lines(
                title="Time per operator",
                x=Axis(name="elements of an operator"),
                y=Axis(name="time", unit="ns"),
                series=[Series(name="addition", points=points_of(sizes, times))],
                marks=[
                    Mark(x=predicted["crossover"].value, name="predicted", predicted=True),
                    Mark(x=found.value, name="measured"),
                ],
            )
        ],
    )


def _time_per_operator(bench: Bench, arrays: list[Any], size: int) -> Interval:
    """Time per operator when many of one size are issued in a row."""
    import torch

    bench.pause()
    elements = len(arrays[0])
    count = max(4, min(_PIECES, elements // size))
    stride = max(1, (elements - size) // count)
    # Cut beforehand: cutting costs as much host time as an operator.
    pieces = [
        tuple(array[start : start + size] for array in arrays)
        for start in range(0, count * stride, stride)
    ][:count]
    samples = []
    for _ in range(_ROUNDS + 1):
        bench.stopwatch.sync()
        began = time.perf_counter_ns()
        for left, right, into in pieces:
            torch.add(left, right, out=into)
        bench.stopwatch.sync()
        samples.append((time.perf_counter_ns() - began) / len(pieces))
    return spread(Timing.of(samples[1:]))


EXPERIMENT = Experiment(
    name="ahead", document=__doc__ or "", predict=predict, measure=measure, seconds=8
)
