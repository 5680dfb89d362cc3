"""Precision: the same product in each dtype, with and without matrix units.

The claim
    Matrix units only do matrix products: on an A100 312 TFLOP/s in 16-bit products against 19.5
    TFLOP/s for everything else.

The law
    A large product runs at the roof of the units that support its dtype; on the vector units it
    runs at theirs. The ratio between dtypes is the ratio between their roofs.

The experiment
    One large product in every dtype that this device multiplies, each predicted from its roof: from
    the sustained rate of a hot device to the rate of a short burst.
"""

from __future__ import annotations

from boundby.hardware import onednn
from boundby.hardware.probes.matmul import affordable_side, product, tf32
from boundby.lab.bench import Bench
from boundby.lab.experiment import TOLERANCE, Experiment, Measured, Predictions, Probe, between
from boundby.lab.rates import product_dtype, product_rate
from boundby.model import Machine, units
from boundby.model.lab import Axis, Bar, Bars

_DTYPES = ("float32", "tf32", "float16", "bfloat16", "float8", "int8")
_SIDE = {"cuda": 4096, "cpu": 2048}


def predict(machine: Machine, _: Probe) -> Predictions:
    predictions = {}
    for dtype in dtypes(machine):
        rate = product_rate(machine, dtype)
        roof = machine.roof(f"matmul.{dtype}")
        assert roof is not None
        predictions[dtype] = between(
            rate.low / TOLERANCE,
            rate.value,
            rate.high * 1.05,
            f"products of {dtype}",
            roof.unit,
            rests_on=(f"matmul.{dtype}", f"matmul.{dtype}.sustained"),
        )
    if machine.rate("matmul.bfloat16") and machine.rate("matmul.float32"):
        few, many = product_rate(machine, "float32"), product_rate(machine, "bfloat16")
        predictions["ratio"] = between(
            many.low / few.high / 1.1,
            many.value / few.value,
            many.high / few.low * 1.1,
            "products of bfloat16 over float32",
            "x",
            rests_on=("matmul.bfloat16", "matmul.bfloat16.sustained", "matmul.float32"),
        )
    return predictions


def dtypes(machine: Machine) -> list[str]:
    return [dtype for dtype in _DTYPES if machine.rate(f"matmul.{dtype}")]


def measure(bench: Bench, _: Probe) -> Measured:
    import torch

    kind = bench.device.kind
    largest = _SIDE[kind] // (2 if bench.quick else 1)
    predicted = predict(bench.machine, Probe())
    measured = Measured()
    for dtype in dtypes(bench.machine):
        side = affordable_side(kind, largest, product_rate(bench.machine, dtype).value)
        with tf32(enabled=dtype == "tf32"), onednn.setting_restored(), torch.inference_mode():
            work = product(bench.device, dtype, (side, side, side))
            if work is not None:
                time = bench.time(work, seconds=0.3)
                measured.found[dtype] = time.inverse(2e9 * side**3)
    if "ratio" in predicted and "bfloat16" in measured.found and "float32" in measured.found:
        measured.found["ratio"] = measured.found["bfloat16"].over(measured.found["float32"])
        ratio = measured.found["ratio"].value
        measured.summary = f"bfloat16 products run {ratio:.1f} times as fast as float32 ones"
    vector = bench.machine.rate("vector.float32")
    fastest = measured.found.get(product_dtype(bench.machine))
    if vector and fastest:
        measured.notes.append(
            f"{product_dtype(bench.machine)} products reach {fastest.value / vector:.1f} times "
            f"the rate of the vector units in float32 ({units.rate(vector, 'FLOP/s')})"
        )
    bars = [
        Bar(
            name=dtype,
            value=measured.found[dtype].value,
            low=predicted[dtype].low,
            high=predicted[dtype].high,
        )
        for dtype in dtypes(bench.machine)
        if dtype in measured.found
    ]
    axis = Axis(name="achieved", unit="FLOP/s", log=False)
    measured.plots.append(Bars(title="One product in every dtype", axis=axis, bars=bars))
    return measured


EXPERIMENT = Experiment(
    name="precision", document=__doc__ or "", predict=predict, measure=measure, seconds=5
)
