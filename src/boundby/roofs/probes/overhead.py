"""What it costs to ask for work: an eager operator, a launch, a graph node, a sync, Python itself.

Host costs are taken from an idle device and well under the launch queue's length (about a thousand
kernels), so that the host is never found waiting for the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from boundby.pace import addition_ns
from boundby.roofs.device import Device
from boundby.roofs.stopwatch import Stopwatch, Timing, Work, time_host, time_host_in_turns

_CALLS = 300
# All in turns, over a second: a host that shares its cores changes its pace within one.
_ROUNDS = 40
_PYTHON_ADDITIONS = 300_000
_GRAPH_KERNELS = 500
_COMPILED_STAGES = 9
_TRAINED_OPERATORS = 64


def measure(
    device: Device, stopwatch: Stopwatch, *, quick: bool, tick: Callable[[], None]
) -> dict[str, Timing]:
    """Timings by the name of their field in `Overheads`, without those that need a compiler."""
    import torch

    rounds = 7 if quick else _ROUNDS
    a, b, one = (torch.rand(size, device=device.target) for size in (64, 64, ()))
    works: dict[str, tuple[Work, int]] = {
        "python_add_ns": (lambda: addition_ns(_PYTHON_ADDITIONS), 1),
        "eager_op_ns": (lambda: a + b, _CALLS),
        "trained_op_ns": (_trained_operators(device.target), 4),
    }
    if device.kind == "cuda":
        works["launch_ns"] = (lambda: torch.cuda._sleep(1), _CALLS)
        works["sync_ns"] = (one.item, 50)
    timings = time_host_in_turns(list(works.values()), rounds=rounds, settle=stopwatch.sync)
    tick()
    found = dict(zip(works, timings, strict=True))
    for name, each in (("python_add_ns", _PYTHON_ADDITIONS), ("trained_op_ns", _TRAINED_OPERATORS)):
        found[name] = found[name].for_each(each)
    if device.kind == "cuda":
        found["graph_kernel_ns"] = _time_graph_kernel(torch, a, stopwatch, rounds)
        tick()
    return found


def _trained_operators(target: str) -> Work:
    """Additions that autograd records, and their nodes in backward, which ask for nothing more."""
    import torch

    with torch.inference_mode(mode=False):
        start, b, gradient = (torch.rand(64, device=target) for _ in range(3))
        start.requires_grad_()

    def train() -> None:
        with torch.inference_mode(mode=False), torch.enable_grad():
            x = start
            for _ in range(_TRAINED_OPERATORS):
                x = x + b
            torch.autograd.grad(x, start, grad_outputs=gradient)

    return train


def _time_graph_kernel(torch: Any, a: Any, stopwatch: Stopwatch, rounds: int) -> Timing:
    """Wall time per kernel of a replayed graph of dependent, tiny kernels."""
    a.add_(1.0)
    stopwatch.sync()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_GRAPH_KERNELS):
            a.add_(1.0)

    def replay() -> None:
        graph.replay()
        stopwatch.sync()

    whole = time_host(replay, calls=1, rounds=rounds, settle=stopwatch.sync)
    return whole.for_each(_GRAPH_KERNELS)


def measure_compiled(device: Device, stopwatch: Stopwatch) -> dict[str, Timing]:
    """Host cost of calling compiled code: of the call (guards), and of each kernel it launches.

    A function of one kernel and one of many are timed; the difference is the kernels'. On a CPU,
    where building each takes ten seconds and there is nothing to launch, the call alone is timed.
    """
    import torch
    from torch._inductor import config, metrics

    config.compile_threads = 1
    config.fx_graph_cache = False

    def stages(x: Any, count: int) -> Any:
        # Sums over alternate axes: each needs all of the one before, so none fuse.
        for stage in range(count):
            x = x / x.sum(stage % 2, keepdim=True)
        return x

    x = torch.rand(64, 64, device=device.target)
    counts: list[int] = []
    works: list[tuple[Work, int]] = []
    with torch.no_grad():
        for count in (1,) if device.kind == "cpu" else (1, _COMPILED_STAGES):
            run = functools.partial(torch.compile(stages, dynamic=False), x, count)
            before = metrics.generated_kernel_count
            run()
            counts.append(metrics.generated_kernel_count - before)
            works.append((run, _CALLS // (_COMPILED_STAGES + 1)))
        timings = time_host_in_turns(works, rounds=_ROUNDS, settle=stopwatch.sync)
    few, many = timings[0], timings[-1]
    kernels = counts[-1] - counts[0]
    if kernels <= 0 or many.ns <= few.ns:
        return {"compiled_call_ns": few}
    each = (many.ns - few.ns) / kernels
    call = max(0.0, few.ns - each * counts[0])
    return {
        "compiled_call_ns": Timing(ns=call, spread=few.spread, samples=few.samples),
        "compiled_kernel_ns": Timing(ns=each, spread=many.spread, samples=many.samples),
    }
