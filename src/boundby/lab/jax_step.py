"""The MLP step in JAX, with and without jit, in a process without a torch device context."""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import msgspec

from boundby.lab.mlp_step import BATCH, CLIP, LAYERS, LEARNING_RATE, WIDTH
from boundby.model.lab import Interval

_LIMIT_S = 120  # time limit
_ROUNDS = 7  # the median of them counts


class JaxTimes(msgspec.Struct):
    """Times of one step, in ns; traffic as XLA counts it."""

    words: str
    plain: Interval
    jit: Interval
    bytes: float | None = None


def time_jax(kind: str, *, quick: bool) -> JaxTimes | str:
    """The times, or one line on why there are none."""
    if importlib.util.find_spec("jax") is None:
        return "JAX is not installed here: its step was not measured"
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if kind == "cpu":
        environment |= {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-P", "-m", __name__, str(2 if quick else _ROUNDS)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_LIMIT_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"JAX did not finish its step within {_LIMIT_S} s"
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return f"JAX could not take its step: {lines[-1] if lines else 'no reason given'}"
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=JaxTimes)


def main() -> None:
    import jax

    rounds = int(sys.argv[1])
    step, state, words = _step(jax)
    compiled = jax.jit(step)
    times = JaxTimes(
        words=f"JAX {jax.__version__} on {jax.devices()[0].platform}, {words}",
        plain=_time(jax, step, state, calls=3, rounds=rounds),
        jit=_time(jax, compiled, state, calls=100, rounds=rounds),
        bytes=_traffic(compiled, state),
    )
    sys.stdout.write(msgspec.json.encode(times).decode() + "\n")


def _step(jax: Any) -> tuple[Any, Any, str]:
    """Forward, backward, clip, Adam; the optimizer as an optax chain if optax is installed."""
    numpy = jax.numpy
    keys = jax.random.split(jax.random.PRNGKey(0), LAYERS + 2)
    parameters = [
        (jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5, numpy.zeros(WIDTH))
        for key in keys[:LAYERS]
    ]
    x, y = (jax.random.normal(key, (BATCH, WIDTH)) for key in keys[LAYERS:])

    def loss_of(parameters: Any) -> Any:
        activations = x
        for index, (weights, bias) in enumerate(parameters):
            activations = activations @ weights + bias
            if index + 1 < LAYERS:
                activations = jax.nn.relu(activations)
        return numpy.mean((activations - y) ** 2)

    initial, update, words = _optimizer(jax)

    def step(parameters: Any, moments: Any) -> Any:
        gradients = jax.grad(loss_of)(parameters)
        return update(parameters, moments, gradients)

    return step, (parameters, initial(parameters)), words


def _optimizer(jax: Any) -> tuple[Any, Any, str]:
    try:
        import optax
    except ImportError:
        return _plain_descent(jax)
    chain = optax.chain(optax.clip(CLIP), optax.adam(LEARNING_RATE))

    def update(parameters: Any, moments: Any, gradients: Any) -> Any:
        changes, moments = chain.update(gradients, moments, parameters)
        return optax.apply_updates(parameters, changes), moments

    return chain.init, update, f"optimizer: optax {optax.__version__}, clip and adam in a chain"


def _plain_descent(jax: Any) -> tuple[Any, Any, str]:
    numpy = jax.numpy

    def update(parameters: Any, moments: Any, gradients: Any) -> Any:
        clipped = jax.tree_util.tree_map(lambda g: numpy.clip(g, -CLIP, CLIP), gradients)
        moved = jax.tree_util.tree_map(lambda p, g: p - LEARNING_RATE * g, parameters, clipped)
        return moved, moments

    return (lambda _: ()), update, "optimizer: clip and plain descent (optax is not installed)"


def _time(jax: Any, step: Any, state: Any, *, calls: int, rounds: int) -> Interval:
    for _ in range(2):
        state = jax.block_until_ready(step(*state))
    samples = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in range(calls):
            state = step(*state)
        jax.block_until_ready(state)
        samples.append((time.perf_counter_ns() - began) / calls)
    low, value, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Interval(low=low, value=value, high=high)


def _traffic(compiled: Any, state: Any) -> float | None:
    analysis = compiled.lower(*state).compile().cost_analysis()
    first = analysis[0] if isinstance(analysis, list) else analysis
    counted = (first or {}).get("bytes accessed")
    return float(counted) if counted is not None else None


if __name__ == "__main__":
    main()
