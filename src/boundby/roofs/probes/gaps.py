"""How long a device stands between two kernels: of those that wait in a queue, and of a graph's.

By the clock, less what a profiler says the kernels take by themselves: as replays count both. The
kernels are those of a transformer's layers, of two sizes: what follows a tiny one, or one that
fills the device for long, waits otherwise.
"""

from __future__ import annotations

from typing import Any

from boundby.roofs.device import Device
from boundby.roofs.stopwatch import Stopwatch, Timing, Work

_CALLS = 300
_ROWS = (512, 4096)
_WIDTH = 1024
_TURNS = 16
_OPERATORS = 7  # each of them a kernel or more
_SECONDS = 0.2


def measure(device: Device, stopwatch: Stopwatch) -> dict[str, Timing]:
    """The shortest kernel and the gaps, by the name of their field in `Overheads`.

    The profiler slows its process down for good: this comes last, in a process of its own, and its
    clocks come first.
    """
    import torch

    layers = _layers(torch, device.target)
    queued = stopwatch.time(layers, seconds=_SECONDS)
    graphed = stopwatch.time(layers, seconds=_SECONDS, graphed=True)
    tiny = torch.rand(64, device=device.target)
    short = _durations(device, lambda: [tiny.fill_(0.5) for _ in range(_CALLS)])
    usual = _durations(device, layers)
    if len(short) < _CALLS // 2 or len(usual) < _OPERATORS * _TURNS * len(_ROWS):
        return {}
    return {
        "shortest_kernel_ns": Timing.of(short),
        "kernel_gap_ns": _between(queued, usual),
        "graph_gap_ns": _between(graphed, usual),
    }


def _layers(torch: Any, target: str) -> Work:
    """Kernels of the kinds that layers are made of, one after the other."""
    functional = torch.nn.functional
    given = [torch.randn(rows, _WIDTH, device=target, dtype=torch.bfloat16) for rows in _ROWS]
    weight = torch.randn(_WIDTH, _WIDTH, device=target, dtype=torch.bfloat16)
    bias = torch.randn(_WIDTH, device=target, dtype=torch.bfloat16)

    def run() -> None:
        for _ in range(_TURNS):
            for x in given:
                torch.addmm(bias, x, weight)
                functional.gelu(x)
                functional.layer_norm(x, (_WIDTH,))
                functional.softmax(x, -1)
                x + x
                x.float()
                x.sum(0)

    return run


def _between(whole: Timing, kernels: list[float]) -> Timing:
    each = (whole.ns - sum(kernels)) / len(kernels)
    return Timing(ns=max(0.0, each), spread=whole.spread, samples=whole.samples)


def _durations(device: Device, work: Work) -> list[float]:
    """How long kernels take by a profiler's clock, none of them waiting for the host."""
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
        backlog()
    return [
        float(event.duration_ns())
        for event in profiler.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
        and "sleep" not in event.name()
        and "spin" not in event.name()
        and event.duration_ns() > 0
    ]
