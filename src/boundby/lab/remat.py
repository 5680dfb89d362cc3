"""Rematerialisation: recompute instead of storing.

The claim
    Recomputing cheap elementwise parts in the backward pass instead of storing them saves memory,
    and also time if the recomputation is fused; for products it costs time.

The law
    Storing an intermediate costs its bytes: written in the forward pass, read in the backward.
    Recomputing an elementwise one inside a fused kernel costs a few operations per element, which
    is free below the machine balance. In eager mode the recomputation costs a whole memory pass. A
    recomputed product costs a third of a training step's FLOPs: forward one part, backward two.

The experiment
    A chain of eight activations, forward and backward: stored, checkpointed in blocks of four, and
    compiled (one kernel each way, recomputing from the input). Then four square layers, stored and
    checkpointed. The tensors saved for the backward are counted as they are saved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from boundby.lab.bench import Bench
from boundby.lab.experiment import (
    Experiment,
    Measured,
    Predictions,
    Probe,
    around,
    between,
    exactly,
)
from boundby.lab.rates import product_dtype, stream_rate
from boundby.model import Machine, units
from boundby.model.lab import Axis, Bar, Bars, Interval

_BLOCKS, _PER_BLOCK = 2, 4  # two checkpointed blocks of four operators each
_ACTIVATIONS = _BLOCKS * _PER_BLOCK
# On a GPU as many that the passes take longer than the host needs to issue them; on a small GPU the
# saved tensors fill half of the memory.
_ELEMENTS = {"cuda": 256 * 1024**2, "cpu": 16 * 1024**2}
_BYTES_FOR_EACH = 64  # eight saved tensors of four bytes are half of this
_CACHED_ELEMENTS = 64 * 1024  # 256 KiB in float32: stays in a core's own cache
_LAYERS = 4  # of the products
_PRODUCT = {"cuda": (8192, 4096), "cpu": (256, 1024)}  # rows, width

Forward = Callable[[Any], Any]


def predict(machine: Machine, _: Probe) -> Predictions:
    """Passes over the array: 2 forward, 3 backward (input, gradient in, gradient out)."""
    forward, backward = 2 / stream_rate(machine, "copy"), 3 / stream_rate(machine, "add")
    memory = ("memory.dram.copy", "memory.dram.add")
    return {
        "checkpointed": around(
            (2 * forward + backward) / (forward + backward),
            "pointwise, eager: time checkpointed over stored",
            "x",
            within=1.15,
            rests_on=memory,
        ),
        "fused": between(
            0.75 / _ACTIVATIONS,
            1 / _ACTIVATIONS,
            2.0 / _ACTIVATIONS,
            "pointwise, compiled: time recomputed over stored",
            "x",
        ),
        "kept": around(
            1 / _PER_BLOCK, "pointwise: bytes kept checkpointed over stored", "x", within=1.05
        ),
        "products": around(4 / 3, "products: time checkpointed over stored", "x", within=1.12),
    }


def measure(bench: Bench, _: Probe) -> Measured:
    import torch

    room = (bench.machine.memory_bytes or 0) // _BYTES_FOR_EACH
    elements = min(_ELEMENTS[bench.device.kind], room or _ELEMENTS["cpu"])
    elements //= 8 if bench.quick else 1
    x = torch.randn(elements, device=bench.target, requires_grad=True)
    grad = torch.ones(elements, device=bench.target)
    # For any size, so that the same code can also be timed on numbers in the cache.
    compiled = torch.compile(_activations, dynamic=True)
    variants: dict[str, Forward] = {
        "stored": _activations,
        "checkpointed": _checkpointed(_block, _BLOCKS),
        "fused": compiled,
    }
    times = bench.compare({name: _training(forward, x, grad) for name, forward in variants.items()})
    kept = {name: _bytes_kept(variants[name], x) for name in ("stored", "checkpointed")}
    measured = Measured(
        found={
            "checkpointed": times["checkpointed"].over(times["stored"]),
            "fused": times["fused"].over(times["stored"]),
        }
    )
    ratio = kept["checkpointed"] / kept["stored"]
    measured.found["kept"] = exactly(ratio)
    for name, size in kept.items():
        measured.add(f"kept.{name}", f"pointwise, {name}: kept for backward", "B", size)
    _find_reason(bench, compiled, measured)
    products = _products(bench)
    measured.found["products"] = products["checkpointed"].over(products["stored"])
    measured.summary = (
        f"recomputing in eager mode takes {measured.found['checkpointed'].value:.2f} times as "
        f"long, with {ratio:.2f} of the memory; fused {measured.found['fused'].value:.2f} times; "
        f"recomputing products {measured.found['products'].value:.2f} times"
    )
    measured.notes.append(
        f"one stored pass over {units.size(4 * elements)}: {units.time(times['stored'].value)}"
    )
    predicted = predict(bench.machine, Probe())
    bars = [
        Bar(
            name=predicted[key].what.split(": time ")[0] + ", " + label,
            value=measured.found[key].value,
            low=predicted[key].low,
            high=predicted[key].high,
        )
        for key, label in (
            ("checkpointed", "checkpointed"),
            ("fused", "recomputed"),
            ("products", "checkpointed"),
        )
    ]
    axis = Axis(name="time over storing", unit="x", log=False)
    measured.plots.append(Bars(title="Recomputing instead of storing", axis=axis, bars=bars))
    return measured


def _find_reason(bench: Bench, compiled: Forward, measured: Measured) -> None:
    """The cost of the fused kernels' arithmetic, on numbers in a cache."""
    import torch

    if bench.cuda:
        return
    x = torch.randn(_CACHED_ELEMENTS, requires_grad=True)
    time = bench.wall(_training(compiled, x, torch.ones(_CACHED_ELEMENTS)))
    arithmetic_ns = time.value / _CACHED_ELEMENTS
    rates = (2 / stream_rate(bench.machine, "copy"), 3 / stream_rate(bench.machine, "add"))
    memory = 4e9 * sum(rates)
    measured.add(
        "fused_alone",
        "pointwise, compiled: on numbers in the cache, per element",
        "ns",
        arithmetic_ns,
    )
    if arithmetic_ns > memory:
        measured.reasons["fused"] = (
            f"on numbers in the cache the fused kernels take {units.time(arithmetic_ns)} per "
            f"element, the memory traffic {units.time(memory)}: the generated code is compute-bound"
        )


def _block(x: Any) -> Any:
    from torch.nn import functional

    for _ in range(_PER_BLOCK):
        x = functional.hardtanh(x, -2.0, 2.0)
    return x


def _activations(x: Any) -> Any:
    for _ in range(_BLOCKS):
        x = _block(x)
    return x


def _checkpointed(part: Forward, times: int) -> Forward:
    from torch.utils.checkpoint import checkpoint

    def forward(x: Any) -> Any:
        for _ in range(times):
            x = checkpoint(part, x, use_reentrant=False)
        return x

    return forward


def _training(forward: Forward, x: Any, grad: Any) -> Callable[[], Any]:
    import torch

    return lambda: torch.autograd.grad(forward(x), x, grad)


def _bytes_kept(forward: Forward, x: Any) -> float:
    """Bytes that autograd keeps between forward and backward, each storage once."""
    import torch

    storages: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = forward(x)
    del out
    return float(sum(storages.values()))


def _products(bench: Bench) -> dict[str, Interval]:
    import torch
    from torch import nn

    rows, width = _PRODUCT[bench.device.kind]
    dtype = getattr(torch, product_dtype(bench.machine))
    layers = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(_LAYERS)))
    layers = layers.to(bench.target, dtype)
    x = torch.randn(rows, width, device=bench.target, dtype=dtype, requires_grad=True)
    wanted = [x, *layers.parameters()]
    grad = torch.ones(rows, width, device=bench.target, dtype=dtype)
    variants: dict[str, Forward] = {"stored": layers, "checkpointed": _checkpointed(layers, 1)}

    def train(forward: Forward) -> Any:
        return torch.autograd.grad(forward(x), wanted, grad)

    return bench.compare({name: partial(train, each) for name, each in variants.items()})


EXPERIMENT = Experiment(
    name="remat", document=__doc__ or "", predict=predict, measure=measure, seconds=25
)
