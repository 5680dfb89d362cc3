"""The documentation of each term of a plan: that of the function that computes it."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from boundby.model.errors import BoundbyError
from boundby.plan import collectives, kernels, layers, limits, memory, scaled, serving, training

_BUBBLE = """Pipeline bubble: (p - 1)/v times one micro-batch of the fullest stage.

p stages and v chunks a stage: 1F1B fills and drains p - 1 stages, interleaving divides both.
"""
_HOST = """Host behind the device: the operators of a micro-batch times the host's time for one,
where that is longer than the device needs. Compiled programs have none.
"""
_FIXED = """Start and end of a step: data, gradient norm, loss read back, learning rate."""
_TENSOR = """Tensor parallelism: activations of V = 2 T D bytes cross the axis.

With sequence parallelism a layer gathers and reduce-scatters twice forward and twice backward, and
gathers two inputs again for the weights' gradients; without it, it all-reduces as often.
"""
_CONTEXT = """Context parallelism: keys and values of the other chips, as in an all-gather, once
forward and once backward, and their gradients back. Ring attention hides it behind itself.
"""

_ENGINE = """Engine, once per token: sampling, bookkeeping, and, without a replayed graph, the
host's time for the operators where it is longer than the device's.
"""

# Parts and limits as a plan prints them, with hyphens for spaces, and what they are made of.
_TERMS: dict[str, Callable[..., Any] | str] = {
    "matmul": kernels.product,
    "tiles": kernels.tile_share,
    "attention": layers.attention,
    "attention-share": layers.attention_share,
    "memory": kernels.pointwise,
    "accumulation": training._accumulation_ns,
    "optimizer": training._optimizer_ns,
    "all-gather": collectives.all_gather_ns,
    "reduce-scatter": collectives.reduce_scatter_ns,
    "all-reduce": collectives.all_reduce_ns,
    "all-to-all": collectives.all_to_all_ns,
    "dispatch": collectives.dispatch_ns,
    "send": collectives.send_ns,
    "tensor": _TENSOR,
    "context": _CONTEXT,
    "bubble": _BUBBLE,
    "host": _HOST,
    "fixed": _FIXED,
    "activations": memory.activation_bytes,
    "states": memory.States,
    "prefill": serving.prefill_ns,
    "weights": kernels.weight_product,
    "experts": serving._expert_ns,
    "keys-and-values": serving.cache_bytes_per_sequence,
    "stream": kernels.stream,
    "engine": _ENGINE,
    "throughput": serving.throughput,
    "scaled": scaled.plan_diagnosis,
    "intensity": limits.intensity,
    "critical-batch": limits.critical_batch,
    "exact-critical-batch": limits.exact_critical_batch,
    "inner-dimension": limits.split_inner_limit,
    "data-parallel-limit": limits.data_parallel_limit,
    "tensor-parallel-limit": limits.tensor_limit,
    "context-parallel-limit": limits.context_limit,
    "decode-tensor-limit": limits.decode_tensor_limit,
    "balanced-fsdp": limits.best_fsdp,
    "least-batch": limits.mixed_batch,
}


def names() -> list[str]:
    return list(_TERMS)


def explain(name: str) -> str:
    """The formula of a term, in words; names may be written as a plan prints them."""
    name = name.strip().lower().replace(" ", "-")
    if name not in _TERMS:
        near = difflib.get_close_matches(name, _TERMS, n=3, cutoff=0.4)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise BoundbyError(f"no term is called {name}: {meant}terms are {', '.join(_TERMS)}")
    term = _TERMS[name]
    text = term if isinstance(term, str) else inspect.getdoc(term) or ""
    return f"{name}\n\n{text.strip()}"
