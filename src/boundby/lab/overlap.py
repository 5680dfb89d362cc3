"""Overlap: compute and communication take between the longer of the two and their sum.

The claim
    With perfect overlap a step takes max(T_math, T_comms), without overlap their sum, which is
    never more than twice the maximum. Measured time lies between the two.

The law
    T_math = FLOPs / (FLOP/s), T_comms = bytes / (bytes/s). Work on different units of the machine
    can overlap; work on the same unit cannot.

The experiment
    On a GPU: products on one stream, copies from pinned memory on another. On a CPU: one core does
    multiply-adds in registers while another streams an array through memory; the streaming rate of
    one core alone is measured before the prediction. The communication takes a quarter, a half, the
    same, twice and four times the time of the arithmetic; of several rounds the fastest counts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from boundby.hardware.probes.matmul import product
from boundby.hardware.stopwatch import Workload
from boundby.lab.bench import Bench
from boundby.lab.chain import Core
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, around, between
from boundby.lab.rates import product_rate, rate_of
from boundby.model import Machine
from boundby.model.lab import Axis, Interval, Lines, Series

# Math and communication in chunks, so that either can be made longer by whole numbers.
_CHUNKS = 4
_RATIOS = (1, 2, 4, 8, 16)  # chunks of communication against four of math
_SIDE = 8192  # a product large enough to reach its roof
# Share of the shorter one: different parts of a machine hardly disturb each other.
_HIDDEN = 0.9
_COPY_BYTES = 128 * 1024**2  # large enough to reach the rate of the link
_STREAM_BYTES = 192 * 1024**2  # larger than the last-level caches of most processors


class _Parts(Protocol):
    def math(self, chunks: int) -> Workload: ...
    def comms(self, chunks: int) -> Workload: ...
    def together(self, math: Workload, comms: Workload) -> Workload: ...


def probe(bench: Bench) -> Probe:
    if bench.cuda:
        return Probe(state=_Streams(bench))
    cores = _Cores()
    (chunk,) = bench.fastest([cores.comms(1)], seconds=1.0)
    cores.balance(rate_of(bench.machine, "vector.float32") / max(1, bench.device.threads), chunk)
    return Probe(figures={"stream": chunk.inverse(1e9 * cores.bytes)}, state=cores)


def predict(machine: Machine, probe: Probe) -> Predictions:
    math, comms = _chunk_times(machine, probe)
    math, comms = math * _CHUNKS, comms * _CHUNKS
    rests = (
        ("matmul.bfloat16", "matmul.bfloat16.sustained", "host_link.h2d")
        if machine.kind == "cuda"
        else ("vector.float32",)
    )
    lower, upper = max(math, comms), math + comms
    likely = upper - _HIDDEN * min(math, comms)
    return {
        "lower": around(lower, "the longer of the two alone", "ns", rests_on=rests),
        "upper": around(upper, "their sum, one after the other", "ns", rests_on=rests),
        "together": between(
            lower / 1.25, likely, upper * 1.25, "both at once", "ns", rests_on=rests
        ),
        "position": between(
            -0.1, _HIDDEN, 1.1, "share of the shorter one that is hidden behind the longer", "share"
        ),
    }


def _chunk_times(machine: Machine, probe: Probe) -> tuple[float, float]:
    """Predicted ns of one chunk of math and of communication."""
    parts = probe.state
    if machine.kind == "cuda":
        math = 2e9 * _SIDE**3 * parts.products / product_rate(machine, "bfloat16").value
        return math, 1e9 * _COPY_BYTES / rate_of(machine, "host_link.h2d")
    one_core = rate_of(machine, "vector.float32") / max(1, machine.threads or 1)
    return 1e9 * parts.flops / one_core, 1e9 * parts.bytes / probe.figures["stream"].value


def measure(bench: Bench, probe: Probe) -> Measured:
    parts: _Parts = probe.state
    work = parts.math(_CHUNKS)
    alone: list[Interval] = []
    both: list[Interval] = []
    for chunks in _RATIOS:
        comms_work = parts.comms(chunks)
        workloads = {"math": work, "comms": comms_work, "both": parts.together(work, comms_work)}
        times = bench.compare(workloads, rounds=7, fastest=True)
        alone.append(times["comms"])
        both.append(times["both"])
        if chunks == _CHUNKS:
            math, comms, together = times["math"], times["comms"], times["both"]
    shorter = min(math.value, comms.value)
    total = math.value + comms.value
    hidden = Interval(
        low=(total - together.high) / shorter,
        value=(total - together.value) / shorter,
        high=(total - together.low) / shorter,
    )
    measured = Measured(
        found={
            "lower": max(math, comms, key=lambda time: time.value),
            "upper": Interval(low=math.low + comms.low, value=total, high=math.high + comms.high),
            "together": together,
            "position": hidden,
        },
        summary=f"both take {together.value / max(math.value, comms.value):.2f} times the longer "
        f"one: {hidden.value:.0%} of the shorter one is hidden",
    )
    measured.plots.append(_plot(bench.machine, probe, math, alone, both))
    return measured


def _plot(
    machine: Machine, probe: Probe, math: Interval, alone: list[Interval], both: list[Interval]
) -> Lines:
    chunk, step = _chunk_times(machine, probe)
    predicted = chunk * _CHUNKS
    ratios = [count / _CHUNKS for count in _RATIOS]

    def series(name: str, values: list[float], *, is_predicted: bool) -> Series:
        return Series(
            name=name, points=list(zip(ratios, values, strict=True)), predicted=is_predicted
        )

    comms = [step * count for count in _RATIOS]
    return Lines(
        title="Math and communication at once",
        x=Axis(name="communication over math"),
        y=Axis(name="time", unit="ns"),
        series=[
            series("together", [time.value for time in both], is_predicted=False),
            series(
                "longer one alone", [max(math.value, t.value) for t in alone], is_predicted=False
            ),
            series("sum", [math.value + t.value for t in alone], is_predicted=False),
            series("max, predicted", [max(predicted, ns) for ns in comms], is_predicted=True),
            series("sum, predicted", [predicted + ns for ns in comms], is_predicted=True),
        ],
    )


class _Streams:
    """A GPU: products on one stream, copies from pinned memory on another."""

    def __init__(self, bench: Bench) -> None:
        import torch

        self._torch = torch
        single_product = product(bench.device, "bfloat16", (_SIDE, _SIDE, _SIDE))
        assert single_product is not None
        self._product = single_product
        self._on_host = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
        self._on_device = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=bench.target)
        self._stream = torch.cuda.Stream(bench.device.index)
        copy_ns = 1e9 * _COPY_BYTES / rate_of(bench.machine, "host_link.h2d")
        product_ns = 2e9 * _SIDE**3 / product_rate(bench.machine, "bfloat16").value
        self.products = max(1, round(copy_ns / product_ns))

    def math(self, chunks: int) -> Workload:
        return lambda: [self._product() for _ in range(chunks * self.products)]

    def comms(self, chunks: int) -> Workload:
        def copy() -> None:
            with self._torch.cuda.stream(self._stream):
                for _ in range(chunks):
                    self._on_device.copy_(self._on_host, non_blocking=True)

        return copy

    def together(self, math: Workload, comms: Workload) -> Workload:
        return lambda: (comms(), math())


class _Cores:
    """A CPU: one core multiplies and adds in registers, another streams through memory."""

    def __init__(self) -> None:
        self._math, self._comms = Core(elements=4096), Core(elements=_STREAM_BYTES // 8)
        self.bytes = float(_STREAM_BYTES)
        self.flops, self._length = 0.0, 0
        self._pool = ThreadPoolExecutor(1)

    def balance(self, flops_per_s: float, comms: Interval) -> None:
        """Make a chunk of math as long as a chunk of communication, by the saved roof."""
        self._length = round(comms.value / 1e9 * flops_per_s / (2 * self._math.elements))
        self.flops = 2.0 * self._math.elements * self._length

    def math(self, chunks: int) -> Workload:
        return self._math.of(self._length * chunks)

    def comms(self, chunks: int) -> Workload:
        once = self._comms.of(1)
        return lambda: [once() for _ in range(chunks)]

    def together(self, math: Workload, comms: Workload) -> Workload:
        def both() -> Any:
            streaming = self._pool.submit(comms)
            math()
            return streaming.result()

        return both


EXPERIMENT = Experiment(
    name="overlap",
    document=__doc__ or "",
    probe=probe,
    predict=predict,
    measure=measure,
    seconds=14,
)
