"""Square products: a fixed cost that larger sizes amortise.

The claim
    The FLOP/s of square products grow with their size: overhead-bound first, then memory-bound,
    then compute-bound, as the fixed dispatch cost is amortised.

The law
    A product of side s does 2s^3 FLOPs on 3s^2 numbers. Its time is the longest of the host's
    dispatch cost, the bytes over bandwidth and the FLOPs over the matrix roof. The first and the
    last are equal at s = cbrt(cost * roof / 2). A memory-bound range exists between them only if,
    at that size, the bytes take longer than either.

The experiment
    Products of all sizes, called one after another as in a script. The fixed cost is fitted to the
    smallest, the roof to the largest; the measured size is where the two cross. A product passes
    through more dispatcher layers than the addition whose cost is saved: one to three times that
    cost is allowed.
"""

from __future__ import annotations

from boundby.hardware import onednn
from boundby.hardware.probes.matmul import affordable_side, product, tf32
from boundby.lab.asymptotes import crossing, flat, points_of, slope
from boundby.lab.bench import Bench
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, between
from boundby.lab.rates import BYTES, overhead_of, product_rate, rate_of
from boundby.model import Machine, units
from boundby.model.lab import Axis, Interval, Lines, Mark, Prediction, Series

_DTYPES = {"cuda": ("bfloat16", "tf32", "float32"), "cpu": ("float32", "bfloat16")}
_SIDES = {"cuda": (32, 8192), "cpu": (4, 2048)}
_LAYERS = (1.0, 1.7, 3.0)  # of an addition's cost: least, expected, most


def predict(machine: Machine, _: Probe) -> Predictions:
    predictions: Predictions = {}
    for dtype in dtypes(machine):
        rate = product_rate(machine, dtype)
        cost = overhead_of(machine, "eager_op_ns") / 1e9
        low, middle, high = ((cost * layers * rate.value / 2) ** (1 / 3) for layers in _LAYERS)
        rests = (f"matmul.{dtype}", f"matmul.{dtype}.sustained")
        predictions[f"side.{dtype}"] = between(
            low,
            middle,
            high,
            f"{dtype}: side where overhead ends and compute begins",
            rests_on=(*rests, "eager_op_ns"),
        )
        predictions[f"rate.{dtype}"] = between(
            rate.low / 1.25,
            rate.value,
            rate.high * 1.05,
            f"{dtype}: FLOP/s of the largest",
            "FLOP/s",
            rests_on=rests,
        )
    return predictions


def dtypes(machine: Machine) -> list[str]:
    return [name for name in _DTYPES[machine.kind] if machine.rate(f"matmul.{name}")]


def measure(bench: Bench, _: Probe) -> Measured:
    predicted = predict(bench.machine, Probe())
    measured = Measured()
    series, marks = [], []
    for dtype in dtypes(bench.machine):
        sides, times = _sweep(bench, dtype)
        level, rise = flat(times), slope(sides, times, power=3, points=2)
        crossover = crossing(level, rise, power=3)
        measured.found[f"side.{dtype}"] = crossover
        measured.found[f"rate.{dtype}"] = rise.inverse(2e9)
        measured.add(f"cost.{dtype}", f"{dtype}: fixed cost of a product", "ns", level)
        measured.notes.append(_bandwidth_regime(bench.machine, dtype, level, crossover.value))
        series.append(Series(name=dtype, points=points_of(sides, times, 2.0, power=3)))
        marks.append(Mark(x=predicted[f"side.{dtype}"].value, name=dtype, predicted=True))
    measured.plots.append(
        Lines(
            title="FLOP/s of square products",
            x=Axis(name="side"),
            y=Axis(name="achieved", unit="FLOP/s"),
            series=series,
            marks=marks,
        )
    )
    first = dtypes(bench.machine)[0]
    measured.summary = _summary(first, predicted[f"side.{first}"], measured.found[f"side.{first}"])
    return measured


def _summary(dtype: str, predicted: Prediction, crossover: Interval) -> str:
    return (
        f"{dtype} products below a side of {crossover.value:.0f} take their dispatch cost; "
        f"predicted: {predicted.value:.0f}"
    )


def _sweep(bench: Bench, dtype: str) -> tuple[list[int], list[Interval]]:
    kind = bench.device.kind
    smallest, largest = _SIDES[kind]
    largest //= 4 if bench.quick else 1
    largest = affordable_side(kind, largest, product_rate(bench.machine, dtype).value)
    sides: list[int] = []
    times: list[Interval] = []
    side = smallest
    while side <= largest:
        with tf32(enabled=dtype == "tf32"), onednn.setting_restored():
            work = product(bench.device, dtype, (side, side, side))
            if work is not None:
                sides.append(side)
                times.append(bench.wall(work, rounds=5))
        side *= 2
    return sides, times


def _bandwidth_regime(machine: Machine, dtype: str, cost: Interval, crossover_side: float) -> str:
    """Whether bandwidth is the longest of the three anywhere between overhead and compute."""
    moved = 3 * BYTES[dtype] * crossover_side**2
    memory = machine.memory_roof(moved)
    memory_ns = 1e9 * moved / (memory.value if memory else rate_of(machine, "memory.dram"))
    side = units.count(round(crossover_side))
    if memory_ns > cost.value:
        return f"{dtype}: bandwidth is the limit around a side of {side}"
    return (
        f"{dtype}: bandwidth is never the limit: at a side of {side} the memory traffic "
        f"takes {units.time(memory_ns)}, the dispatch {units.time(cost.value)}"
    )


EXPERIMENT = Experiment(
    name="matmul", document=__doc__ or "", predict=predict, measure=measure, seconds=10
)
