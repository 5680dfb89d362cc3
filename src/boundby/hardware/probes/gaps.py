"""The gap between two kernels on a device: of queued kernels, and of kernels in a graph.

Wall time minus the kernels' own durations from a profiler, as simulations count both. The gap after
a short kernel differs from that after a long one. In a graph, a kernel may begin before the
profiled end of the previous one: the gap is then negative.
"""

from __future__ import annotations

from typing import Any

from boundby.hardware.device import Device
from boundby.hardware.stopwatch import Stopwatch, Timing, Workload

_CALLS = 300  # a sample
# Rows of the kernels' tensors, and how often all kernels are called: for the gaps after short and
# after long kernels, by the prefix of their fields in `Overheads`.
_SIZES = {"": (512, 24), "long_": (16_384, 12)}
_WIDTH = 1024  # columns of the kernels' tensors
_OPERATORS = 5  # kernels of one call of all
_SECONDS = 0.2  # time of one measurement
_PASSES = 5  # profiled calls, for a mean


def measure(device: Device, stopwatch: Stopwatch) -> dict[str, Timing]:
    """The shortest kernel and the gaps, by the name of their field in `Overheads`.

    The profiler slows its process permanently: this runs last, in a separate process, with its wall
    times first.
    """
    import torch

    layers = {name: _layers(torch, device.target, *size) for name, size in _SIZES.items()}
    clocks = {
        name: [stopwatch.time(work, seconds=_SECONDS, graphed=graphed) for graphed in (False, True)]
        for name, work in layers.items()
    }
    tiny = torch.rand(64, device=device.target)
    short = _durations(device, lambda: [tiny.fill_(0.5) for _ in range(_CALLS)])
    if len(short) < _PASSES * _CALLS // 2:
        return {}
    overheads = {"shortest_kernel_ns": Timing.of(short)}
    for name, (queued, graphed) in clocks.items():
        kernels = _durations(device, layers[name])
        count, lost = divmod(len(kernels), _PASSES)
        if lost or count != _OPERATORS * _SIZES[name][1]:
            return {}
        queue, graph = gaps_of(queued, graphed, sum(kernels) / _PASSES, count)
        overheads[f"{name}kernel_gap_ns"] = queue
        overheads[f"{name}graph_gap_ns"] = graph
    return overheads


def _layers(torch: Any, target: str, rows: int, turns: int) -> Workload:
    """Kernels of the kinds in common layers, one after the other, each operator one kernel.

    Products are left out, because their time changes with the temperature of the device. So are
    sums over many rows, which begin with a memset: a graph does not speed these up.
    """
    functional = torch.nn.functional
    x = torch.randn(rows, _WIDTH, device=target, dtype=torch.bfloat16)

    def run() -> None:
        for _ in range(turns):
            functional.gelu(x)
            functional.layer_norm(x, (_WIDTH,))
            functional.softmax(x, -1)
            x + x
            x.float()

    return run


def gaps_of(
    queued: Timing, graphed: Timing, kernels_ns: float, count: int
) -> tuple[Timing, Timing]:
    """The gap after each of this many kernels of known total duration: in a queue, and in a graph.

    The difference between the two wall times is more reliable than either minus the profiler's sum.
    """
    queue = max(0.0, (queued.ns - kernels_ns) / count)
    graph = queue - (queued.ns - graphed.ns) / count
    return (
        Timing(ns=queue, spread=queued.spread, samples=queued.samples),
        Timing(ns=graph, spread=graphed.spread, samples=graphed.samples),
    )


def _durations(device: Device, work: Workload) -> list[float]:
    """The durations of kernels by a profiler's clock, over some passes, without waits for the
    host."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def backlog() -> None:
        torch.cuda._sleep(20_000_000)
        work()
        torch.cuda.synchronize(device.index)

    backlog()
    with profile(activities=[ProfilerActivity.CUDA]):
        backlog()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(_PASSES):
            backlog()
    return [
        float(event.duration_ns())
        for event in profiler.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
        and "sleep" not in event.name()
        and "spin" not in event.name()
        and event.duration_ns() > 0
    ]
