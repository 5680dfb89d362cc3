"""Operator classes: products are nearly all of the FLOPs but not all of the time.

The claim
    In BERT training products are 99.8% of the FLOPs and 61% of the time; normalizations 0.17% and
    25.5%, elementwise operators 0.03% and 13.5%. The latter two reach 250 and 700 times fewer
    FLOP/s. The table is from Ivanov et al., Data Movement Is All You Need: A Case Study on
    Optimizing Transformers (2021), on a V100.

The law
    A product of large matrices runs at the matrix roof. Softmax, layer norm and elementwise
    operators do a few FLOPs for every number that they read and write: they run at
    bandwidth x FLOPs per byte. The ratio of the two is how many times fewer FLOP/s they reach.

The experiment
    Training steps of a BERT encoder (attention, layer norms, gelu, AdamW; no dropout, whose random
    numbers belong to neither class), diagnosed like any other step. Predicted from the shapes: the
    FLOPs of the products and the memory passes of the other operators, each at its roof. Eager
    kernels take up to three times their roofline minimum; the intervals of the time shares allow
    for this.
"""

from __future__ import annotations

from boundby.lab.bench import Bench
from boundby.lab.encoder import Shape, training_step
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, between, exactly
from boundby.lab.rates import BYTES, product_dtype, product_rate, stream_rate
from boundby.model import Machine, units
from boundby.model.lab import Axis, Bar, Bars
from boundby.model.rows import ClassRow
from boundby.session.live import diagnose

_SHAPES = {
    "cuda": Shape(layers=12, width=1024, heads=16, batch=16, length=512),
    "cpu": Shape(layers=2, width=512, heads=8, batch=8, length=128),
}
_ABOVE_FLOOR = 3.0  # factor above the roofline minimum; assumed
# FLOPs per element: of a softmax or layer norm forward and backward, of a pointwise operator.
_NORM_FLOPS, _POINTWISE_FLOPS = 12.0, 4.0
_PASSES = 5  # of a normalization or activation: two forward, three backward
_PAPER = {"contraction": 0.61, "normalization": 0.255, "elementwise": 0.135}  # of the time


def predict(machine: Machine, _: Probe) -> Predictions:
    shape, dtype = _SHAPES[machine.kind], product_dtype(machine)
    rate = product_rate(machine, dtype).value
    flops = _contraction_flops(shape)
    norm, point = _normalized(shape), _pointwise(shape)
    seconds = flops / rate
    others = BYTES[dtype] * _PASSES * (norm + point) / stream_rate(machine, "copy")
    expected = seconds / (seconds + others)
    least = seconds / (seconds + _ABOVE_FLOOR * others)
    most = _ABOVE_FLOOR * seconds / (_ABOVE_FLOOR * seconds + others)
    achieved = stream_rate(machine, "copy") / (BYTES[dtype] * _PASSES)
    rests = (f"matmul.{dtype}", f"matmul.{dtype}.sustained", "memory.dram.copy")
    few = _NORM_FLOPS * norm + _POINTWISE_FLOPS * point
    return {
        "flops": between(0.95, flops / (flops + few), 1.0, "products: share of the FLOPs", "share"),
        "time": between(
            least, expected, most, "products: share of the time", "share", rests_on=rests
        ),
        **{
            name: between(
                rate / (achieved * each) / _ABOVE_FLOOR,
                rate / (achieved * each),
                rate / (achieved * each) * _ABOVE_FLOOR,
                f"{name} operators: times fewer FLOP/s than products",
                "x",
                rests_on=rests,
            )
            for name, each in (
                ("normalization", _NORM_FLOPS),
                ("elementwise", _POINTWISE_FLOPS),
            )
        },
    }


def _contraction_flops(shape: Shape) -> float:
    """Forward 24 d^2 per token and 4 d for every pair of tokens; backward twice that."""
    width, tokens = shape.width, shape.tokens
    return 3.0 * shape.layers * (24 * tokens * width**2 + 4 * tokens * shape.length * width)


def _normalized(shape: Shape) -> float:
    """Elements in softmax and layer norms."""
    return float(shape.layers * (shape.scores + 2 * shape.tokens * shape.width))


def _pointwise(shape: Shape) -> float:
    """Elements of scaling, gelu and residuals."""
    return float(shape.layers * (shape.scores + 6 * shape.tokens * shape.width))


def measure(bench: Bench, _: Probe) -> Measured:
    import torch

    shape = _SHAPES[bench.device.kind]
    dtype = getattr(torch, product_dtype(bench.machine))
    step = training_step(shape, bench.target, dtype)

    def ticked() -> None:
        bench.tick()
        step()

    diagnosis = diagnose(ticked, warmup=3, steps=5, profiled=2, machine=bench.machine)
    rows: dict[str, ClassRow] = {row.name: row for row in diagnosis.classes}
    products = rows["contraction"]
    measured = Measured(
        found={"flops": exactly(products.flops_share), "time": exactly(products.time_share)}
    )
    for name in ("normalization", "elementwise"):
        slower = rows[name].slower_than_contractions if name in rows else None
        if slower:
            measured.found[name] = exactly(slower)
    for name, row in rows.items():
        if row.time_share > 0:
            measured.add(f"time.{name}", f"{name}: share of the time", "share", row.time_share)
            measured.add(f"flops.{name}", f"{name}: share of the FLOPs", "share", row.flops_share)
    measured.add("step", "one training step", "ns", diagnosis.step.wall_ns)
    measured.summary = (
        f"products are {products.flops_share:.2%} of the FLOPs and "
        f"{units.share(products.time_share)} of the time (99.80% and 61% in the paper)"
    )
    measured.plots.append(_plot(rows))
    return measured


def _plot(rows: dict[str, ClassRow]) -> Bars:
    bars = []
    for name, share in _PAPER.items():
        if name in rows:
            bars.append(Bar(name=name, value=rows[name].time_share))
            bars.append(Bar(name=f"{name}, the paper", value=share))
    if "movement" in rows:
        bars.append(Bar(name="movement", value=rows["movement"].time_share))
    axis = Axis(name="share", unit="share", log=False)
    return Bars(title="Share of the time, here and in the paper", axis=axis, bars=bars)


EXPERIMENT = Experiment(
    name="classes",
    document=__doc__ or "",
    predict=predict,
    measure=measure,
    seconds=20,
    marks_process=True,
)
