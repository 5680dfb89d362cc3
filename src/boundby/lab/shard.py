"""Sharding: a product over two ranks is limited by the link or by compute, depending on its size.

The claim
    Split over the contracting dimension, each of two chips does half of the work; the partial sums
    then cross the link. Whether compute or communication sets the time depends on D alone, not on
    the batch.

The law
    T_math = 2B(D/2)F / (FLOP/s), T_comms = bytes(BF) / (bytes/s). They are equal at
    D = bytes per number x FLOP/s / bandwidth: below it the link is the limit, above it compute.

The experiment
    Two ranks under torchrun, with NCCL if there are two GPUs, otherwise on the CPU with gloo. The
    saved machine does not include this link (nor, on a GPU, products on the CPU): both are measured
    between the ranks first, and the prediction is made from them. Then products of every D, and the
    sum that one rank sends to the other. The time per D of the largest products and the time of the
    transfer are fitted; the measured D is where they cross.
"""

from __future__ import annotations

from boundby.lab.asymptotes import crossing, middle, points_of, slope
from boundby.lab.bench import Bench
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, between
from boundby.lab.rates import product_rate
from boundby.lab.torchrun import Ranks
from boundby.model import Machine, units
from boundby.model.lab import Axis, Interval, Lines, Mark, Series

_RANKS = 2  # the smallest number that communicates


def probe(bench: Bench) -> Probe:
    ranks = Ranks(cuda=bench.cuda, quick=bench.quick)
    link, rate = ranks.probe()
    return Probe(figures={"link": link, "rank": rate}, state=ranks)


def predict(machine: Machine, probe: Probe) -> Predictions:
    ranks: Ranks = probe.state
    link = probe.figures["link"].value
    rate = rank_rate(machine, probe)
    product_roofs = (f"matmul.{ranks.dtype}", f"matmul.{ranks.dtype}.sustained")
    depth = ranks.itemsize * rate / link
    return {
        "depth": around(
            depth,
            "D at which math and communication take equally long",
            within=1.5,
            rests_on=() if ranks.probes_products else product_roofs,
        ),
        "transfer": around(
            ranks.itemsize * ranks.rows * ranks.columns / link * 1e9,
            f"transfer of the {ranks.rows} x {ranks.columns} partial sums",
            "ns",
            within=1.5,
        ),
        "below": between(
            0.0, 0.25, 1.0, "math over communication at a quarter of that D: bound by the link", "x"
        ),
        "above": between(
            1.0, 4.0, 16.0, "math over communication at four times that D: bound by compute", "x"
        ),
    }


def rank_rate(machine: Machine, probe: Probe) -> float:
    """FLOP/s of one rank: the machine's share if it describes this device, otherwise the
    probe's."""
    ranks: Ranks = probe.state
    if ranks.probes_products:
        return probe.figures["rank"].value
    whole = product_rate(machine, ranks.dtype).value
    return whole if machine.kind == "cuda" else whole / min(_RANKS, machine.threads or 1)


def measure(bench: Bench, probe: Probe) -> Measured:
    ranks: Ranks = probe.state
    predicted = predict(bench.machine, probe)
    depths = _depths(predicted["depth"].value)
    bench.pause()
    math, comms = ranks.measure(depths)
    level = middle(comms)
    crossover = crossing(level, slope(depths, math))
    below = _nearest(depths, predicted["depth"].value / 4)
    above = _nearest(depths, predicted["depth"].value * 4)
    measured = Measured(
        found={
            "depth": crossover,
            "transfer": level,
            "below": math[below].over(comms[below]),
            "above": math[above].over(comms[above]),
        },
        notes=[ranks.words],
        summary=f"bound by the link below D = {crossover.value:.0f}, by compute above; predicted: "
        f"{predicted['depth'].value:.0f}, from a link of "
        f"{units.rate(probe.figures['link'].value, 'B/s')}",
    )
    measured.add(
        "link", "bandwidth of the link, measured before predicting", "B/s", probe.figures["link"]
    )
    measured.add(
        "rank", "one rank's products, measured before predicting", "FLOP/s", probe.figures["rank"]
    )
    measured.plots.append(_plot(depths, math, comms, predicted["depth"].value, crossover.value))
    return measured


def _depths(depth: float) -> list[int]:
    """Even numbers, a factor of two apart, around the predicted one."""
    return [
        max(2, round(depth * 2**power / 2) * 2) for power in range(-4, 5) if depth * 2**power >= 2
    ]


def _nearest(depths: list[int], wanted: float) -> int:
    return min(range(len(depths)), key=lambda index: abs(depths[index] / wanted - 1))


def _plot(
    depths: list[int],
    math: list[Interval],
    comms: list[Interval],
    predicted: float,
    measured: float,
) -> Lines:
    return Lines(
        title="Half of the product, and the transfer of its partial sums",
        x=Axis(name="D, the contracting dimension"),
        y=Axis(name="time", unit="ns"),
        series=[
            Series(name="math", points=points_of(depths, math)),
            Series(name="communication", points=points_of(depths, comms)),
        ],
        marks=[
            Mark(x=predicted, name="predicted", predicted=True),
            Mark(x=measured, name="measured"),
        ],
    )


EXPERIMENT = Experiment(
    name="shard", document=__doc__ or "", probe=probe, predict=predict, measure=measure, seconds=22
)
