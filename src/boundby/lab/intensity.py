"""Arithmetic intensity: extra operations are free until the machine balance is reached.

The claim
    A fused chain of n operations runs at memory speed until n reaches the machine balance. Above it
    FLOP/s are constant and time grows with n.

The law
    One element costs 8 bytes of traffic (float32 in, float32 out) and n multiply-adds of 2 FLOPs.
    Memory takes 8 / bandwidth, the vector units 2n / FLOP/s; they are equal at
    n = 4 * FLOP/s / bandwidth.

The experiment
    Chains from one multiply-add to many times the balance, over an array that is larger than every
    cache. The memory line is fitted to the shortest chains, the arithmetic line to the longest; the
    measured balance is where the two cross. All chains are measured several times in turn, and the
    fastest result of each counts, because other processes on the machine only add time.
"""

from __future__ import annotations

from boundby.lab.asymptotes import crossing, flat, points_of, slope
from boundby.lab.bench import Bench
from boundby.lab.chain import Chain
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around
from boundby.lab.rates import rate_of, stream_rate, streamed_bytes
from boundby.model import Machine
from boundby.model.lab import Axis, Interval, Lines, Mark, Plot, Series

_BYTES = 8.0  # of traffic per element
_FLOPS = 2.0  # per multiply-add
_PAST_BALANCE = 10  # times the ridge point


def predict(machine: Machine, _: Probe) -> Predictions:
    bandwidth, flops = stream_rate(machine, "copy"), rate_of(machine, "vector.float32")
    memory, units = ("memory.dram.copy", "memory.dram"), ("vector.float32",)
    return {
        "crossover": around(
            _BYTES / _FLOPS * flops / bandwidth,
            "multiply-adds per element where memory and arithmetic take equally long",
            rests_on=memory + units,
        ),
        "bandwidth": around(bandwidth, "bandwidth of the shortest chains", "B/s", rests_on=memory),
        "flops": around(flops, "FLOP/s of the longest chains", "FLOP/s", rests_on=units),
    }


def lengths(balance: float) -> list[int]:
    """Powers of two, from one to well beyond the balance."""
    return [2**power for power in range(16) if 2**power <= _PAST_BALANCE * balance]


def measure(bench: Bench, _: Probe) -> Measured:
    predicted = predict(bench.machine, Probe())
    chain = Chain(bench, streamed_bytes(bench.machine, quick=bench.quick) // 8)
    counts = lengths(predicted["crossover"].value)
    times = bench.fastest([chain.of(count) for count in counts], seconds=0.3)
    level, rise = flat(times), slope(counts, times)
    found = crossing(level, rise)
    return Measured(
        found={
            "crossover": found,
            "bandwidth": level.inverse(1e9 * _BYTES * chain.elements),
            "flops": rise.inverse(1e9 * _FLOPS * chain.elements),
        },
        plots=_plots(counts, times, chain.elements, predicted["crossover"].value, found.value),
        summary=f"up to about {found.value:.0f} multiply-adds per element add no time; predicted: "
        f"{predicted['crossover'].value:.0f}",
    )


def _plots(
    counts: list[int], times: list[Interval], elements: int, balance: float, found: float
) -> list[Plot]:
    marks = [
        Mark(x=balance, name="predicted", predicted=True),
        Mark(x=found, name="measured"),
    ]
    x = Axis(name="multiply-adds per element")
    return [
        Lines(
            title="FLOP/s rise with the chain, then stay",
            x=x,
            y=Axis(name="achieved", unit="FLOP/s"),
            series=[
                Series(name="FLOP/s", points=points_of(counts, times, _FLOPS * elements, power=1))
            ],
            marks=marks,
        ),
        Lines(
            title="Bandwidth stays, then falls",
            x=x,
            y=Axis(name="achieved", unit="B/s"),
            series=[Series(name="bandwidth", points=points_of(counts, times, _BYTES * elements))],
            marks=marks,
        ),
    ]


EXPERIMENT = Experiment(
    name="intensity", document=__doc__ or "", predict=predict, measure=measure, seconds=14
)
