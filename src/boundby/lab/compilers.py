"""Compilers: the same small training step, operator by operator or compiled as a whole.

The claim
    Frameworks pay for flexibility with overhead. Tracing the step removes it: torch.compile, CUDA
    graphs, JAX under jit.

The law
    The time of a step of small operators is the host time of issuing it, whatever the operators
    compute: a dispatch per operator, bookkeeping per autograd node, a dispatch without a launch per
    tensor that is only handled (a view, an element of a list), and some additions' time per Python
    function call. A compiled step is one call, which passes its tensors and launches its kernels. A
    replayed graph launches none of them separately; only the device time remains. The saved costs
    are those of the cheapest operation of each kind in a tight loop: their sum is a lower bound,
    and a mixed step takes up to several times as much.

The experiment
    A training step of an MLP (forward, backward, gradient clipping, Adam) in eager torch, compiled
    as a whole, as a CUDA graph, and in JAX with and without jit if JAX is installed (with an optax
    chain as optimizer). Operators, nodes, calls, kernels and their traffic are counted before the
    prediction.
"""

from __future__ import annotations

from typing import Any

from boundby.hardware.stopwatch import Workload
from boundby.lab.bench import Bench
from boundby.lab.counts import count_calls, count_nodes, count_operators
from boundby.lab.experiment import Experiment, Measured, Predictions, Probe, between, exactly
from boundby.lab.jax_step import time_jax
from boundby.lab.mlp_step import BATCH, LAYERS, WIDTH, eager_loss, eager_step, whole_step
from boundby.lab.rates import overhead_of, rate_of
from boundby.model import Machine, units
from boundby.model.lab import Axis, Bar, Bars, Interval

# One product per layer in the forward and two in the backward, without the gradient of the data.
PRODUCTS = 3 * LAYERS - 1
# A function of the framework takes several lines with lookups: as long as this many additions.
ADDITIONS_A_CALL = 5
# Time of a real step relative to the sum of the cheapest costs of its parts.
LEAST, USUAL, MOST = 1 / 1.25, 1.5, 2.5


def probe(bench: Bench) -> Probe:
    """Counts, not times: what the eager step issues, and what the compiled one does."""
    import torch
    from torch._inductor import metrics

    eager = eager_step(bench.target)
    counts = count_operators(eager)
    _, loss_of = eager_loss(bench.target)
    metrics.reset()
    step, arguments = whole_step(bench.target)
    compiled = torch.compile(step, dynamic=False)
    compiled(*arguments)
    figures = {
        "operators": counts.operators,
        "views": counts.views,
        "nodes": count_nodes(loss_of()),
        "calls": count_calls(eager),
        "eager_bytes": counts.bytes,
        "kernels": metrics.generated_kernel_count + PRODUCTS,
        "tensors": sum(map(len, arguments[:-2])) + 2,
        "compiled_calls": count_calls(lambda: compiled(*arguments)),
        "least_bytes": _least_traffic(arguments),
    }
    return Probe(
        figures={name: exactly(float(count)) for name, count in figures.items()},
        state=(compiled, arguments),
    )


def predict(machine: Machine, probe: Probe) -> Predictions:
    eager, compiled = _eager_ns(machine, probe), _compiled_ns(machine, probe)
    rests = ("eager_op_ns", "trained_op_ns", "launch_ns", "python_add_ns")
    words = {"eager": "eager torch: the step", "compiled": "torch.compile: the step"}
    predictions = {
        name: between(LEAST * ns, USUAL * ns, MOST * ns, words[name], "ns", rests_on=rests)
        for name, ns in {"eager": eager, "compiled": compiled}.items()
    }
    predictions["speedup"] = between(
        1.2, eager / compiled, 20.0, "torch.compile: speed-up over eager", "x"
    )
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


def _eager_ns(machine: Machine, probe: Probe) -> float:
    count = {name: figure.value for name, figure in probe.figures.items()}
    dispatch, view, call = _costs(machine)
    # If not measured, a node is assumed to cost as much as an operator.
    node = (machine.overheads.trained_op_ns or 2 * dispatch) - dispatch
    operators = count["operators"] * dispatch + count["views"] * view
    requests = operators + count["nodes"] * max(0.0, node)
    return requests + count["calls"] * call + _arithmetic_ns(machine)


def _compiled_ns(machine: Machine, probe: Probe) -> float:
    count = {name: figure.value for name, figure in probe.figures.items()}
    dispatch, view, call = _costs(machine)
    kernel = machine.overheads.compiled_kernel_ns or dispatch
    kernels = (count["kernels"] - PRODUCTS) * kernel + PRODUCTS * dispatch
    entry = overhead_of(machine, "compiled_call_ns") + count["tensors"] * view
    return entry + kernels + count["compiled_calls"] * call + _arithmetic_ns(machine)


def _costs(machine: Machine) -> tuple[float, float, float]:
    """Host time in ns of an eager operator, of a view, and of a Python function call."""
    dispatch = overhead_of(machine, "eager_op_ns")
    view = max(0.0, dispatch - (machine.overheads.launch_ns or 0.0))
    return dispatch, view, ADDITIONS_A_CALL * overhead_of(machine, "python_add_ns")


def _arithmetic_ns(machine: Machine) -> float:
    """Time of the products on a CPU, where they run on the issuing thread; on a GPU they
    overlap."""
    if machine.kind != "cpu":
        return 0.0
    return PRODUCTS * 2 * BATCH * WIDTH**2 / rate_of(machine, "matmul.float32") * 1e9


def measure(bench: Bench, probe: Probe) -> Measured:
    compiled, arguments = probe.state
    workloads: dict[str, Workload] = {
        "eager": eager_step(bench.target),
        "compiled": lambda: compiled(*arguments),
    }
    if bench.cuda:
        workloads["graph"] = _graph(bench)
    times = bench.compare(workloads)
    measured = Measured(found=dict(times))
    measured.found["speedup"] = times["eager"].over(times["compiled"])
    for name, words in {
        "operators": "eager torch: operators of a step",
        "nodes": "eager torch: nodes of backward",
        "calls": "eager torch: functions that Python calls in a step",
        "kernels": "torch.compile: kernels of a step",
    }.items():
        measured.add(name, words, "", probe.figures[name])
    for name, words in {
        "eager_bytes": "eager torch: traffic of a step",
        "least_bytes": "minimum traffic of a step: each input read and each result written once",
    }.items():
        if name in probe.figures:
            measured.add(name, words, "B", probe.figures[name])
    _add_jax(bench, measured, times)
    fastest = min(times, key=lambda name: times[name].value)
    measured.summary = (
        f"{probe.figures['operators'].value:.0f} operators take "
        f"{units.time(times['eager'].value)} in eager mode; fastest: {fastest}, "
        f"{units.time(times[fastest].value)}"
    )
    predicted = predict(bench.machine, probe)
    names = {"eager": "eager torch", "compiled": "torch.compile", "graph": "CUDA graph"}
    bars = [
        Bar(
            name=names.get(name, name),
            value=time.value,
            low=predicted[name].low if name in predicted else None,
            high=predicted[name].high if name in predicted else None,
        )
        for name, time in times.items()
    ]
    axis = Axis(name="time of a step", unit="ns")
    measured.plots.append(Bars(title="The same step", axis=axis, bars=bars))
    return measured


def _least_traffic(arguments: tuple[Any, ...]) -> float:
    """Parameters and both moments in and out, the data in."""
    *states, x, y = arguments
    return float(2 * sum(each.nbytes for state in states for each in state) + x.nbytes + y.nbytes)


def _add_jax(bench: Bench, measured: Measured, times: dict[str, Interval]) -> None:
    jax_times = time_jax(bench.device.kind, quick=bench.quick)
    if isinstance(jax_times, str):
        measured.notes.append(jax_times)
        return
    measured.notes.append(jax_times.words)
    for name, samples in {"JAX": jax_times.plain, "JAX jit": jax_times.jit}.items():
        times[name] = samples
        measured.add(name, f"{name}: the step", "ns", samples)
    if jax_times.bytes is not None:
        measured.add("jax_bytes", "JAX jit: traffic of a step", "B", jax_times.bytes)
    measured.add(
        "jax_speedup",
        "JAX jit: speed-up over JAX without jit",
        "x",
        jax_times.plain.over(jax_times.jit),
    )


def _graph(bench: Bench) -> Workload:
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
    replay: Workload = graph.replay
    return replay


EXPERIMENT = Experiment(
    name="compilers",
    document=__doc__ or "",
    probe=probe,
    predict=predict,
    measure=measure,
    seconds=40,
)
