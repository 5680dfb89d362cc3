"""Doubling the batch: a test for overhead, and a case in which it misleads.

The claim
    Doubling the batch of an overhead-bound model costs little; for a compute-bound model it doubles
    the time. The exception: a product with few rows also costs nothing extra, and is not
    overhead-bound.

The law
    Overhead does not grow with the data: a model of tiny layers takes (operators x dispatch cost)
    at any batch. Compute grows with the batch. A product of few rows with large weights spends its
    time reading the weights, for twice the rows too; its intensity grows with the batch instead.
    The bandwidth distinguishes the two: the first moves almost no bytes, the second runs at the
    memory roof.

The experiment
    Three models, each at one batch and at twice that batch: twenty tiny layers; one large product;
    one product of very few rows with weights that are larger than every cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from boundby.hardware.stopwatch import Workload
from boundby.lab.bench import Bench
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, between
from boundby.lab.rates import (
    BYTES,
    overhead_of,
    product_dtype,
    product_rate,
    rate_of,
    streamed_bytes,
)
from boundby.model import Machine, units
from boundby.model.lab import Axis, Bar, Bars, Interval

_LAYERS, _TINY, _TINY_BATCH = 20, 32, 4  # so narrow that dispatch decides the time
_TINY_OPERATORS = 2 * _LAYERS  # a product with its bias, and a relu
_LARGE = {"cuda": (8192, 4096), "cpu": (512, 1024)}  # batch, width
_SKINNY = {"cuda": (4, 8192), "cpu": (1, 4096)}  # batch, inner dimension


def predict(machine: Machine, _: Probe) -> Predictions:
    dtype = product_dtype(machine)
    dispatch_ns = _TINY_OPERATORS * overhead_of(machine, "eager_op_ns")
    extra_ns = 2e9 * _LAYERS * _TINY_BATCH * _TINY**2 / product_rate(machine, dtype).value
    batch, _inner = _SKINNY[machine.kind]
    per_row = (
        2 / BYTES[dtype] * rate_of(machine, "memory.dram") / product_rate(machine, dtype).value
    )
    skinny = max(1.0, 2 * batch * per_row) / max(1.0, batch * per_row)
    memory = ("memory.dram",)
    return {
        "overhead": between(
            0.9, 1 + extra_ns / dispatch_ns, 1.15, "tiny layers: time at twice the batch", "x"
        ),
        "compute": around(2.0, "large product: time at twice the batch", "x", within=1.15),
        "skinny": between(
            0.8 * skinny, skinny, 1.25 * skinny, "skinny product: time at twice the batch", "x"
        ),
        "skinny_bandwidth": around(
            1.0, "skinny product: share of the memory bandwidth", "share", rests_on=memory
        ),
        "overhead_bandwidth": between(
            0.0,
            _tiny_bytes() / dispatch_ns * 1e9 / rate_of(machine, "memory.dram"),
            0.2,
            "tiny layers: share of the memory bandwidth",
            "share",
        ),
    }


def measure(bench: Bench, _: Probe) -> Measured:
    kind = bench.device.kind
    size = streamed_bytes(bench.machine, quick=bench.quick) // 2
    large, width = _LARGE[kind]
    skinny, inner = _SKINNY[kind]
    columns = size // (BYTES[product_dtype(bench.machine)] * inner) // 128 * 128
    weights = _numbers(bench, columns, inner).t()
    square = _numbers(bench, width, width)
    tiny = _at_both_batches(bench, _TINY_BATCH, lambda batch: _tiny_model(bench, batch))
    big = _at_both_batches(bench, large, lambda batch: _product(bench, batch, square))
    thin = _at_both_batches(bench, skinny, lambda batch: _product(bench, batch, weights))
    whole = rate_of(bench.machine, "memory.dram") / 1e9
    moved = BYTES[product_dtype(bench.machine)] * inner * columns
    measured = Measured(
        found={
            "overhead": tiny[1].over(tiny[0]),
            "compute": big[1].over(big[0]),
            "skinny": thin[1].over(thin[0]),
            "skinny_bandwidth": thin[0].inverse(moved / whole),
            "overhead_bandwidth": tiny[0].inverse(_tiny_bytes() / whole),
        }
    )
    measured.add("overhead_ns", "tiny layers: time", "ns", tiny[0])
    measured.add("skinny_ns", "skinny product: time", "ns", thin[0])
    share = measured.found["skinny_bandwidth"].value
    measured.summary = (
        f"tiny layers and the skinny product take the same time at twice the batch; only the "
        f"product runs at {units.share(share)} of the memory bandwidth"
    )
    bars = {"tiny layers": "overhead", "large product": "compute", "skinny product": "skinny"}
    predicted = predict(bench.machine, Probe())
    measured.plots.append(
        Bars(
            title="Time at twice the batch over time at one",
            axis=Axis(name="ratio", unit="x", log=False),
            bars=[
                Bar(
                    name=name,
                    value=measured.found[key].value,
                    low=predicted[key].low,
                    high=predicted[key].high,
                )
                for name, key in bars.items()
            ],
        )
    )
    return measured


def _at_both_batches(bench: Bench, batch: int, model: Callable[[int], Workload]) -> list[Interval]:
    """The time at a batch and at twice that batch."""
    return list(bench.compare({"one": model(batch), "two": model(2 * batch)}).values())


def _tiny_bytes() -> float:
    """The bytes that the tiny layers move: weights, and activations in and out of both
    operators."""
    return 4.0 * _LAYERS * (_TINY**2 + 4 * _TINY_BATCH * _TINY)


def _numbers(bench: Bench, rows: int, columns: int) -> Any:
    import torch

    dtype = getattr(torch, product_dtype(bench.machine))
    return torch.randn(rows, columns, dtype=dtype, device=bench.target)


def _product(bench: Bench, batch: int, weights: Any) -> Workload:
    import torch

    rows = _numbers(bench, batch, weights.shape[0])
    out = torch.empty(batch, weights.shape[1], dtype=rows.dtype, device=bench.target)
    return lambda: torch.mm(rows, weights, out=out)


def _tiny_model(bench: Bench, batch: int) -> Workload:
    import torch
    from torch import nn

    layers = [layer for _ in range(_LAYERS) for layer in (nn.Linear(_TINY, _TINY), nn.ReLU())]
    model = nn.Sequential(*layers).to(bench.target)
    rows = torch.randn(batch, _TINY, device=bench.target)

    def run() -> None:
        with torch.inference_mode():
            model(rows)

    return run


EXPERIMENT = Experiment(
    name="doubling", document=__doc__ or "", predict=predict, measure=measure, seconds=6
)
