"""Compilers: the same small training step, asked for one operator at a time or as a whole.

The claim
    Frameworks pay for flexibility with overhead. Tracing the step takes it away: torch.compile,
    CUDA graphs, JAX under jit.

The law
    A step of small operators takes (operators x cost of asking), whatever they compute. Compiled,
    it is asked for once: one call, and each of its kernels where they are launched one by one. In
    a replayed graph not even those: only the device's own pace is left.

The experiment
    An MLP's step (forward, backward, gradients clipped, Adam) in eager torch, compiled as a whole,
    as a CUDA graph, and the same in JAX, with and without jit, where JAX is installed (an optax
    chain as its optimizer). Operators and kernels are counted before the prediction; their traffic
    is counted too.
"""

from __future__ import annotations

from typing import Any

from boundby import units
from boundby.lab.bench import Bench
from boundby.lab.experiment import Experiment, Observation, Predictions, Probe, between, exactly
from boundby.lab.jax_step import time_jax
from boundby.lab.mlp_step import LAYERS, count_operators, eager_step, whole_step
from boundby.lab.rates import overhead_of
from boundby.model import Machine
from boundby.model.lab import Axis, Bar, Bars, Interval
from boundby.roofs.stopwatch import Work


def probe(bench: Bench) -> Probe:
    """Counts, not times: operators of the eager step, kernels of the compiled one."""
    import torch
    from torch._inductor import metrics

    operators, traffic = count_operators(eager_step(bench.target))
    figures = {"operators": exactly(operators), "eager_bytes": exactly(traffic)}
    metrics.reset()
    step, arguments = whole_step(bench.target)
    compiled = torch.compile(step, dynamic=False)
    compiled(*arguments)
    kernels = metrics.generated_kernel_count + 3 * LAYERS - 1  # and the products, by the library
    figures["kernels"] = exactly(float(kernels))
    figures["least_bytes"] = exactly(_least_traffic(arguments))
    return Probe(figures=figures, state=(compiled, arguments))


def predict(machine: Machine, probe: Probe) -> Predictions:
    asking = overhead_of(machine, "eager_op_ns")
    call = overhead_of(machine, "compiled_call_ns")
    kernel = machine.overheads.compiled_kernel_ns or asking
    eager = probe.figures["operators"].value * asking
    compiled = call + probe.figures["kernels"].value * kernel
    rests = ("eager_op_ns",)
    predictions = {
        "eager": between(
            eager / 1.25, 1.5 * eager, 4 * eager, "eager torch: the step", "ns", rests_on=rests
        ),
        "compiled": between(
            compiled / 2, compiled, 3 * compiled, "torch.compile: the step", "ns", rests_on=rests
        ),
        "speedup": between(
            1.2, 1.5 * eager / compiled, 20.0, "torch.compile: times as fast as eager", "x"
        ),
    }
    if machine.overheads.graph_kernel_ns:
        graph = probe.figures["operators"].value * machine.overheads.graph_kernel_ns
        predictions["graph"] = between(
            graph / 2,
            2 * graph,
            5 * graph,
            "CUDA graph: the step",
            "ns",
            rests_on=("graph_kernel_ns",),
        )
    return predictions


def measure(bench: Bench, probe: Probe) -> Observation:
    compiled, arguments = probe.state
    works: dict[str, Work] = {
        "eager": eager_step(bench.target),
        "compiled": lambda: compiled(*arguments),
    }
    if bench.cuda:
        works["graph"] = _graph(bench)
    times = bench.compare(works)
    seen = Observation(found=dict(times))
    seen.found["speedup"] = times["eager"].over(times["compiled"])
    for name, words in {
        "operators": "eager torch: operators of a step",
        "kernels": "torch.compile: kernels of a step",
    }.items():
        seen.add(name, words, "", probe.figures[name])
    for name, words in {
        "eager_bytes": "eager torch: traffic of a step",
        "least_bytes": "traffic of a step if every number moved once",
    }.items():
        if name in probe.figures:
            seen.add(name, words, "B", probe.figures[name])
    _add_jax(bench, seen, times)
    fastest = min(times, key=lambda name: times[name].value)
    seen.summary = (
        f"{probe.figures['operators'].value:.0f} operators take "
        f"{units.time(times['eager'].value)} in eager mode, {fastest} "
        f"{units.time(times[fastest].value)}"
    )
    law = predict(bench.machine, probe)
    names = {"eager": "eager torch", "compiled": "torch.compile", "graph": "CUDA graph"}
    bars = [
        Bar(
            name=names.get(name, name),
            value=time.value,
            low=law[name].low if name in law else None,
            high=law[name].high if name in law else None,
        )
        for name, time in times.items()
    ]
    axis = Axis(name="time of a step", unit="ns")
    seen.plots.append(Bars(title="The same step", axis=axis, bars=bars))
    return seen


def _least_traffic(arguments: tuple[Any, ...]) -> float:
    """Parameters and both moments in and out, the data in."""
    *states, x, y = arguments
    return float(2 * sum(each.nbytes for state in states for each in state) + x.nbytes + y.nbytes)


def _add_jax(bench: Bench, seen: Observation, times: dict[str, Interval]) -> None:
    found = time_jax(bench.device.kind, quick=bench.quick)
    if isinstance(found, str):
        seen.notes.append(found)
        return
    seen.notes.append(found.words)
    for name, samples in {"JAX": found.plain, "JAX jit": found.jit}.items():
        times[name] = samples
        seen.add(name, f"{name}: the step", "ns", samples)
    if found.bytes is not None:
        seen.add("jax_bytes", "JAX jit: traffic of a step", "B", found.bytes)
    seen.add("jax_speedup", "JAX jit: times as fast as without", "x", found.plain.over(found.jit))


def _graph(bench: Bench) -> Work:
    """The eager step, recorded once and replayed."""
    import torch

    step: Any = eager_step(bench.target, capturable=True)
    side = torch.cuda.Stream(bench.device.index)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Work = graph.replay
    return replay


EXPERIMENT = Experiment(
    name="compilers",
    document=__doc__ or "",
    probe=probe,
    predict=predict,
    measure=measure,
    seconds=40,
)
