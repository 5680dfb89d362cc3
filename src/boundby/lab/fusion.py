"""Operator fusion: the cost of an elementwise operator is its memory traffic.

The claim
    cos(cos(x)) in eager mode reads and writes memory four times and takes twice as long as one cos;
    fused it takes about as long as one. gelu, with many more operations, takes as long as relu.

The law
    An elementwise operator reads and writes every element: 8 bytes in float32. Its time is these
    bytes over the copy bandwidth, whatever it computes, as long as the arithmetic takes less time
    than the memory traffic.

The experiment
    cos once, cos twice in two eager calls, cos twice in one compiled kernel, gelu and relu, on an
    array that is larger than every cache. The time of one cos is predicted from the copy bandwidth.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from boundby.hardware.stopwatch import Workload
from boundby.lab.bench import Bench
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, between
from boundby.lab.rates import stream_rate, streamed_bytes
from boundby.model import Machine, units
from boundby.model.lab import Axis, Bar, Bars, Interval

_BYTES_PER_ELEMENT = 8  # one float32 read, one written
# Small enough for a core's own cache and one thread, large enough to outweigh the call.
_CACHED_ELEMENTS = 16 * 1024
# Arithmetic is hidden behind memory traffic only below this share of its time.
_HIDDEN = 0.6


def predict(machine: Machine, _: Probe) -> Predictions:
    one_ns = 1e9 * _BYTES_PER_ELEMENT / stream_rate(machine, "copy")
    return {
        "one": around(
            one_ns, "one cos, per element", "ns", rests_on=("memory.dram.copy", "memory.dram")
        ),
        "eager": around(2.0, "cos(cos) eager over one cos", "x", within=1.15),
        "fused": between(0.85, 1.0, 1.2, "cos(cos) fused over one cos", "x"),
        "gelu": between(0.85, 1.0, 1.2, "gelu over relu", "x"),
    }


def measure(bench: Bench, _: Probe) -> Measured:
    import torch

    elements = streamed_bytes(bench.machine, quick=bench.quick) // _BYTES_PER_ELEMENT
    x = torch.rand(elements, device=bench.target)
    between_, y = torch.empty_like(x), torch.empty_like(x)

    def twice(source: Any, out: Any) -> None:
        out.copy_(source.cos().cos())

    def eager() -> None:
        torch.cos(x, out=between_)
        torch.cos(between_, out=y)

    compiled = torch.compile(twice, dynamic=False)
    workloads: dict[str, Workload] = {
        "cos": lambda: torch.cos(x, out=y),
        "cos(cos) eager": eager,
        "cos(cos) fused": lambda: compiled(x, y),
        "relu": lambda: torch.clamp_min(x, 0.0, out=y),
        "gelu": lambda: torch.ops.aten.gelu.out(x, out=y),
    }
    with torch.no_grad():
        times = bench.compare(workloads)
    single, both, fused = times["cos"], times["cos(cos) eager"], times["cos(cos) fused"]
    measured = Measured(
        found={
            "one": single.times(1 / elements),
            "eager": both.over(single),
            "fused": fused.over(single),
            "gelu": times["gelu"].over(times["relu"]),
        },
        summary=f"two eager passes take {both.value / single.value:.2f} times one, the fused pair "
        f"{fused.value / single.value:.2f} times: the memory traffic sets the time",
    )
    _find_reasons(bench, measured, x)
    pass_ns = predict(bench.machine, Probe())["one"].times(elements)
    measured.plots.append(_plot(times, pass_ns))
    return measured


def _cosines(count: int, x: Any) -> Any:
    for _ in range(count):
        x = x.cos()
    return x


def _plot(times: dict[str, Interval], one: Interval) -> Bars:
    bars = []
    for name, time in times.items():
        predicted = one.times(2 if "eager" in name else 1)
        bars.append(Bar(name=name, value=time.value, low=predicted.low, high=predicted.high))
    return Bars(title="Time of one call", axis=Axis(name="time", unit="ns", log=False), bars=bars)


def _find_reasons(bench: Bench, measured: Measured, x: Any) -> None:
    """The cost of the arithmetic alone: of one more cosine in a long fused chain, on a GPU."""
    import torch

    if bench.cuda:
        chains = {n: torch.compile(partial(_cosines, n), dynamic=False) for n in (4, 12)}
        short, long = (bench.time(partial(chain, x)).value for chain in chains.values())
        alone_ns = max(0.0, long - short) / 8 / x.numel()
        memory_ns = 1e9 * _BYTES_PER_ELEMENT / stream_rate(bench.machine, "copy")
        measured.add("cos_alone", "a cosine's arithmetic alone, per element", "ns", alone_ns)
        if 2 * alone_ns > _HIDDEN * memory_ns:
            measured.reasons["fused"] = (
                f"a cosine's arithmetic takes {units.time(alone_ns)} per element, two of them most "
                f"of the {units.time(memory_ns)} of memory time: it is not hidden entirely"
            )
        return
    small = torch.rand(_CACHED_ELEMENTS)
    out = torch.empty_like(small)
    workloads = {
        "cos": lambda: torch.cos(small, out=out),
        "gelu": lambda: torch.ops.aten.gelu.out(small, out=out),
    }
    memory_ns = 1e9 * _BYTES_PER_ELEMENT / stream_rate(bench.machine, "copy")
    threads = max(1, bench.device.threads)
    arithmetic_ns = {
        name: bench.time(work, seconds=0.05).value / _CACHED_ELEMENTS / threads
        for name, work in workloads.items()
    }
    for key, name in {"one": "cos", "fused": "cos", "gelu": "gelu"}.items():
        measured.add(
            f"{name}_alone",
            f"{name} on numbers in the cache, per element",
            "ns",
            arithmetic_ns[name],
        )
        if arithmetic_ns[name] * (2 if key == "fused" else 1) > memory_ns:
            measured.reasons[key] = (
                f"on numbers in the cache {name} alone takes {units.time(arithmetic_ns[name])} per "
                f"element, the memory traffic {units.time(memory_ns)}: it is compute-bound here"
            )


EXPERIMENT = Experiment(
    name="fusion", document=__doc__ or "", predict=predict, measure=measure, seconds=22
)
