"""The critical batch: extra rows are free while reading the weights takes longer.

The claim
    [B, D] x [D, F] has an intensity of about B. It is memory-bound up to a batch that follows from
    the roofs alone (240 on a TPU v5e), and compute-bound above it.

The law
    Reading the weights (2DF bytes in bfloat16, 4DF in float32) takes the same time for any B. The
    2BDF FLOPs, with a multiply-add counted as two, grow with B. Both take equally long at
    B = bytes per number / 2 * FLOP/s / bandwidth.

The experiment
    One weight matrix that is larger than every cache, multiplied by an increasing number of rows. A
    flat line is fitted to the smallest batches, a rising one to the largest; the measured critical
    batch is where they cross. bfloat16 on a GPU, float32 on a CPU. All sizes are measured several
    times in turn, and the fastest result of each counts.
"""

from __future__ import annotations

from typing import Any

from boundby.hardware.stopwatch import Workload
from boundby.lab.asymptotes import crossing, flat, points_of, slope
from boundby.lab.bench import Bench
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around
from boundby.lab.rates import BYTES, product_dtype, product_rate, reading_rate, streamed_bytes
from boundby.model import Machine
from boundby.model.lab import Axis, Interval, Lines, Mark, Plot, Series

_INNER = {"cuda": 8192, "cpu": 4096}
# A product on a CPU first copies the weights into another layout. That time is small compared with
# the arithmetic only for large batches.
_FARTHEST = {"cuda": 16, "cpu": 64}


def predict(machine: Machine, _: Probe) -> Predictions:
    dtype = product_dtype(machine)
    rate = product_rate(machine, dtype).value
    bandwidth = reading_rate(machine)
    memory = ("memory.dram.read", "memory.dram")
    matrix = (f"matmul.{dtype}", f"matmul.{dtype}.sustained")
    return {
        "critical": around(
            BYTES[dtype] / 2 * rate / bandwidth,
            f"critical batch, {dtype}",
            "rows",
            rests_on=memory + matrix,
        ),
        "bandwidth": around(
            bandwidth, "rate at which small batches read the weights", "B/s", rests_on=memory
        ),
        "flops": around(rate, "FLOP/s of large batches", "FLOP/s", rests_on=matrix),
    }


def measure(bench: Bench, _: Probe) -> Measured:
    import torch

    predicted = predict(bench.machine, Probe())
    dtype = product_dtype(bench.machine)
    real, inner = getattr(torch, dtype), _INNER[bench.device.kind]
    size = streamed_bytes(bench.machine, quick=bench.quick) // (2 if bench.cuda else 1)
    columns = size // (BYTES[dtype] * inner) // 128 * 128
    weights = torch.randn(columns, inner, dtype=real, device=bench.target).t()
    batches = [
        2**p
        for p in range(16)
        if 2**p <= _FARTHEST[bench.device.kind] * predicted["critical"].value
    ]
    products = []
    for batch in batches:
        rows = torch.randn(batch, inner, dtype=real, device=bench.target)
        out = torch.empty(batch, columns, dtype=real, device=bench.target)
        products.append(_product(rows, weights, out))
    with torch.inference_mode():
        times = bench.fastest(products, seconds=0.2)
    level, rise = flat(times), slope(batches, times)
    found = crossing(level, rise)
    flops = 2.0 * inner * columns
    return Measured(
        found={
            "critical": found,
            "bandwidth": level.inverse(1e9 * BYTES[dtype] * inner * columns),
            "flops": rise.inverse(1e9 * flops),
        },
        plots=_plots(batches, times, flops, predicted["critical"].value, found.value),
        summary=f"compute-bound from about {found.value:.0f} rows; predicted: "
        f"{predicted['critical'].value:.0f}",
        notes=_largest_excess(batches, times, level, rise),
    )


def _product(rows: Any, weights: Any, out: Any) -> Workload:
    import torch

    return lambda: torch.mm(rows, weights, out=out)


def _largest_excess(
    batches: list[int], times: list[Interval], level: Interval, rise: Interval
) -> list[str]:
    """A note on the batch whose time is furthest above the two lines."""
    ratios = {
        batch: time.value / max(level.value, rise.value * batch)
        for batch, time in zip(batches, times, strict=True)
    }
    worst = max(ratios, key=lambda batch: ratios[batch])
    return [
        f"furthest above the law at {worst} rows: {ratios[worst]:.1f} times the larger of the time "
        "to read the weights and the time of the arithmetic"
    ]


def _plots(
    batches: list[int], times: list[Interval], flops: float, critical: float, found: float
) -> list[Plot]:
    marks = [Mark(x=critical, name="predicted", predicted=True), Mark(x=found, name="measured")]
    x = Axis(name="batch (rows)")
    return [
        Lines(
            title="Time: flat while the weights are read, then rising",
            x=x,
            y=Axis(name="time", unit="ns"),
            series=[Series(name="product", points=points_of(batches, times))],
            marks=marks,
        ),
        Lines(
            title="FLOP/s over the batch",
            x=x,
            y=Axis(name="achieved", unit="FLOP/s"),
            series=[Series(name="product", points=points_of(batches, times, flops, power=1))],
            marks=marks,
        ),
    ]


EXPERIMENT = Experiment(
    name="batch", document=__doc__ or "", predict=predict, measure=measure, seconds=14
)
