"""How long a device stands between two kernels: of those that wait in a queue, and of a graph's.

By the clock, less what a profiler says the kernels take by themselves: as replays count both. What
follows a short kernel waits otherwise than what follows a long one. In a graph a kernel may begin
before the profiler lets the one before it end: then it is less than nothing.
"""

from __future__ import annotations

from typing import Any

from boundby.hardware.device import Device
from boundby.hardware.stopwatch import Stopwatch, Timing, Workload

_CALLS = 300  # a sample
# Rows of what the kernels work on, and how often all of them are called: for the gaps after short
# kernels and after long ones, by how their fields in `Overheads` begin.
_SIZES = {"": (512, 24), "long_": (16_384, 12)}
_WIDTH = 1024
_OPERATORS = 5
_SECONDS = 0.2
_PASSES = 5


def measure(device: Device, stopwatch: Stopwatch) -> dict[str, Timing]:
    """The shortest kernel and the gaps, by the name of their field in `Overheads`.

    The profiler slows its process down for good: this comes last, in a process of its own, and its
    clocks come first.
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
    found = {"shortest_kernel_ns": Timing.of(short)}
    for name, (queued, graphed) in clocks.items():
        kernels = _durations(device, layers[name])
        count, lost = divmod(len(kernels), _PASSES)
        if lost or count != _OPERATORS * _SIZES[name][1]:
            return {}
        queue, graph = gaps_of(queued, graphed, sum(kernels) / _PASSES, count)
        found[f"{name}kernel_gap_ns"] = queue
        found[f"{name}graph_gap_ns"] = graph
    return found


def _layers(torch: Any, target: str, rows: int, turns: int) -> Workload:
    """Kernels of the kinds that layers are made of, one after the other, each operator one.

    Products are not among them: what they take changes with how warm the device is. Nor are sums
    over many rows, which have memory set to zero first: a graph is no faster in that.
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
    """After each of so many kernels, which take so long by themselves: in a queue, and in a graph.

    What the clock says a graph saves is surer than either beside the profiler's sum.
    """
    queue = max(0.0, (queued.ns - kernels_ns) / count)
    graph = queue - (queued.ns - graphed.ns) / count
    return (
        Timing(ns=queue, spread=queued.spread, samples=queued.samples),
        Timing(ns=graph, spread=graphed.spread, samples=graphed.samples),
    )


def _durations(device: Device, work: Workload) -> list[float]:
    """How long kernels take by a profiler's clock, over some passes, none waiting for the host."""
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
