"""The cost of issuing work: an eager operator, a launch, a graph node, a sync, Python itself.

Host costs are measured from an idle device and well below the launch queue's length (about a
thousand kernels), so that the host never waits for the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from boundby.hardware.device import Device
from boundby.hardware.stopwatch import Stopwatch, Timing, Workload, time_host, time_host_in_turns
from boundby.model.host_speed import addition_ns, slower

_CALLS = 300  # per sample
# All alternate, over a second: the speed of a host with shared cores changes within one.
_ROUNDS = 40
_PYTHON_ADDITIONS = 300_000  # per sample: several milliseconds
_GRAPH_KERNELS = 500  # enough to outweigh the launch of the graph
# Enough kernels to outweigh the entry cost, whose noise would otherwise dominate the difference.
_COMPILED_STAGES = 25
_COMPILED_CALLS = (4, 30)  # per sample: of the long function, and of the short one
_TRAINED_OPERATORS = 64  # enough to outweigh the start of the backward pass

# Work, how often it is called for a sample, and how many kernels it launches.
_Built = tuple[tuple[Workload, int], int]


def measure(
    device: Device, stopwatch: Stopwatch, *, quick: bool, tick: Callable[[], None]
) -> dict[str, Timing]:
    """Timings by the name of their field in `Overheads`, without those that need a compiler."""
    import torch

    rounds = 7 if quick else _ROUNDS
    a, b, scalar = (torch.rand(size, device=device.target) for size in (64, 64, ()))
    workloads: dict[str, tuple[Workload, int]] = {
        "python_add_ns": (lambda: addition_ns(_PYTHON_ADDITIONS), 1),
        "eager_op_ns": (lambda: a + b, _CALLS),
        "trained_op_ns": (_trained_operators(device.target), 4),
    }
    if device.kind == "cuda":
        workloads["launch_ns"] = (lambda: torch.cuda._sleep(1), _CALLS)
        workloads["sync_ns"] = (scalar.item, 50)
    timings = time_host_in_turns(list(workloads.values()), rounds=rounds, settle=stopwatch.sync)
    tick()
    by_name = dict(zip(workloads, timings, strict=True))
    for name, each in (("python_add_ns", _PYTHON_ADDITIONS), ("trained_op_ns", _TRAINED_OPERATORS)):
        by_name[name] = by_name[name].for_each(each)
    if device.kind == "cuda":
        by_name["graph_kernel_ns"] = _time_graph_kernel(torch, a, stopwatch, rounds)
        tick()
    return by_name


def _trained_operators(target: str) -> Workload:
    """Additions that autograd records, and their backward nodes, which launch nothing else."""
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


def measure_compiled(
    device: Device, stopwatch: Stopwatch, addition_took_ns: float
) -> dict[str, Timing]:
    """Host cost of calling compiled code: of the call (guards), and of each kernel it launches,
    without gradients and in training, where kernels have more arguments and more saved tensors.

    A function with few kernels and one with many are timed; the difference is the kernels' cost. On
    a CPU, where building each takes ten seconds and there are no launches, only the call is timed.
    Everything is scaled to the host's speed when the other overheads were measured, some seconds
    before.
    """
    import torch
    from torch._inductor import config

    config.compile_threads = 1
    config.fx_graph_cache = False
    x = torch.rand(64, 64, device=device.target)
    plain, trained = _compiled_calls(torch, x), _trained_calls(torch, x)
    calls = [plain(1)]
    if device.kind == "cuda":
        calls += [plain(_COMPILED_STAGES), trained(1), trained(_COMPILED_STAGES)]
    workloads = [*(work for work, _ in calls), (lambda: addition_ns(_PYTHON_ADDITIONS), 1)]
    *timings, additions = time_host_in_turns(workloads, rounds=_ROUNDS, settle=stopwatch.sync)
    slowdown = slower(additions.for_each(_PYTHON_ADDITIONS).ns, addition_took_ns)
    costs = _compiled_costs(timings, [kernels for _, kernels in calls])
    return {
        name: msgspec.structs.replace(timing, ns=timing.ns / slowdown)
        for name, timing in costs.items()
    }


def _compiled_costs(timings: list[Timing], kernels: list[int]) -> dict[str, Timing]:
    each = _for_one_more(timings[:2], kernels[:2])
    if each is None:
        return {"compiled_call_ns": timings[0]}
    call = max(0.0, timings[0].ns - each.ns * kernels[0])
    costs = {
        "compiled_call_ns": msgspec.structs.replace(timings[0], ns=call),
        "compiled_kernel_ns": each,
    }
    in_training = _for_one_more(timings[2:], kernels[2:])
    return costs if in_training is None else {**costs, "trained_kernel_ns": in_training}


def _for_one_more(timings: list[Timing], kernels: list[int]) -> Timing | None:
    if len(timings) < 2:
        return None
    few, many = timings
    more = kernels[1] - kernels[0]
    if more <= 0 or many.ns <= few.ns:
        return None
    return msgspec.structs.replace(many, ns=(many.ns - few.ns) / more)


def _compiled_calls(torch: Any, x: Any) -> Callable[[int], _Built]:
    def stages(x: Any, count: int) -> Any:
        # Sums over alternate dimensions: each needs the whole previous result, so none fuse.
        for stage in range(count):
            x = x / x.sum(stage % 2, keepdim=True)
        return x

    return lambda count: _built(functools.partial(torch.compile(stages, dynamic=False), x, count))


def _trained_calls(torch: Any, x: Any) -> Callable[[int], _Built]:
    """Calls like those of a network's layers: scale, shift, activation, normalization, forward and
    backward."""
    with torch.inference_mode(mode=False):
        start, gradient = (torch.rand_like(x) for _ in range(2))
        scale, shift = (torch.rand_like(x[0]) for _ in range(2))
        start.requires_grad_()

    def stages(x: Any, count: int) -> Any:
        for stage in range(count):
            x = torch.tanh(x * scale + shift)
            x = x / x.sum(stage % 2, keepdim=True)
        return x

    def build(count: int) -> _Built:
        compiled = torch.compile(stages, dynamic=False)

        def run() -> None:
            with torch.inference_mode(mode=False), torch.enable_grad():
                torch.autograd.grad(compiled(start, count), start, grad_outputs=gradient)

        return _built(run)

    return build


def _built(run: Workload) -> _Built:
    """Called once, which compiles it: with the number of calls per sample and of kernels."""
    from torch._inductor import metrics

    before = metrics.generated_kernel_count
    run()
    kernels = metrics.generated_kernel_count - before
    fewest, most = _COMPILED_CALLS
    return (run, max(fewest, min(most, _CALLS // max(1, kernels)))), kernels
